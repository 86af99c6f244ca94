// Dead letters: look at them, give them back, remove them.

import {ask, poll, query} from './api.js';
import {button, page, say, table} from './dom.js';
import {clock, date, number} from './format.js';

const pageOf = 100;

function mount({main, signal}) {
  const {root, part} = page('dead');
  main.append(root);
  const form = part('search').elements;
  const chosen = new Set();
  let narrowed = {}, after = 0, next = 0, rows = [], held, known;
  const said = text => say(part('said'), text);
  const narrow = () => Object.fromEntries(['filter', 'consumer', 'reason'].map(k => [k, form[k].value.trim()]).filter(([, v]) => v));

  async function load() {
    const answer = await ask('/v1/dead' + query({...narrowed, after: after || '', limit: pageOf}), {signal, timeout: 30000});
    rows = answer.letters;
    next = answer.next ?? 0;
    for (const seq of chosen) if (!rows.some(l => l.seq === seq)) chosen.delete(seq);
    table(part('rows'), rows.map(row), after || Object.keys(narrowed).length ? 'no letter here' : 'there are no dead letters');
    marks();
    part('first').disabled = after === 0;
    part('next').disabled = next === 0;
  }
  // The status says whether DEAD changed: only then is a page of it worth asking for.
  let wanted = true;
  const again = poll(async () => {
    if (!wanted) return;
    wanted = false;
    try { await load(); } catch (error) { wanted = true; throw error; }
  }, () => 2000, signal);
  const reload = () => { wanted = true; again(); };

  function row(l) {
    return {key: l.seq, cells: [
      {make: () => tick(l)}, {make: () => button(String(l.seq), () => look(l.seq), 'link')}, {text: clock(date(l.time)), class: 'time', title: l.time},
      {text: l.subject, class: 'code'}, {text: l.detail ? `${l.reason}: ${l.detail}` : l.reason}, l.consumer ?? '',
      {text: l.deliveries ? number(l.deliveries) : '', class: 'n wide'}, {text: number(l.size), class: 'n wide'},
    ]};
  }
  function tick(l) {
    const box = document.createElement('input');
    box.type = 'checkbox';
    box.dataset.seq = l.seq;
    box.setAttribute('aria-label', `Choose letter ${l.seq}`);
    box.addEventListener('change', () => { box.checked ? chosen.add(l.seq) : chosen.delete(l.seq); marks(); });
    return box;
  }
  function marks() {
    for (const box of part('rows').querySelectorAll('input')) box.checked = chosen.has(Number(box.dataset.seq));
    part('every').checked = rows.length > 0 && chosen.size === rows.length;
    part('retry').disabled = part('purge').disabled = chosen.size === 0;
    part('retry-all').disabled = part('purge-all').disabled = rows.length === 0;
  }

  async function look(seq) {
    const l = await ask(`/v1/dead/${seq}`, {signal}).catch(error => said(error.message));
    if (!l) return;
    held = l;
    say(part('letter-title'), `Letter ${l.seq}`);
    const facts = {Subject: l.subject, Stream: l.stream, 'Sequence there': l.stream_seq, Reason: l.reason, Detail: l.detail, Consumer: l.consumer, Deliveries: l.deliveries,
      'Retried before': l.retry, 'Dead since': clock(date(l.time)), 'Cannot be retried': l.refusal,
      Headers: Object.entries(l.headers ?? {}).filter(([k]) => !k.startsWith('Fieldpost-')).map(([k, v]) => `${k}: ${v.join(', ')}`).join('; ')};
    table(part('letter-facts'), Object.entries(facts).filter(([, v]) => v).map(([k, v]) => ({key: k, cells: [{text: k, head: true}, String(v)]})));
    say(part('letter-payload'), l.payload ?? (l.payload_b64 ? `base64: ${l.payload_b64}` : 'none'));
    part('letter-retry').disabled = Boolean(l.refusal);
    part('letter').showModal();
  }

  /** change asks until everything is done: with all, the hub answers in parts. */
  async function change(what, choice) {
    const sum = {retried: 0, purged: 0, gone: 0, refused: 0};
    const why = [];
    said(what === 'retry' ? 'Retrying …' : 'Purging …');
    try {
      for (let more = choice; more;) {
        const done = await ask(`/v1/dead/${what}`, {method: 'POST', body: more, signal, timeout: 120000});
        for (const k in sum) sum[k] += done[k];
        why.push(...(done.why ?? []));
        more = done.next ? {...choice, after: done.next, up_to: done.up_to} : null;
      }
      const words = Object.entries(sum).filter(([, n]) => n > 0).map(([k, n]) => `${number(n)} ${k}`);
      said([words.join(', ') || 'Nothing was there any more', ...why.slice(0, 3).map(w => `letter ${w.seq}: ${w.why}`)].join('. '));
    } catch (error) {
      if (!signal.aborted) said(error.message);
    }
    chosen.clear();
    reload();
  }
  let purging = null;
  function confirm(text, choice) {
    purging = choice;
    say(part('confirm-text'), text);
    part('confirm').showModal();
    part('confirm-no').focus();
  }
  const close = dialog => part(dialog).close();
  const words = () => Object.entries(narrowed).map(([k, v]) => `${k} ${v}`).join(', ') || 'all of them';

  part('search').addEventListener('submit', event => { event.preventDefault(); narrowed = narrow(); after = 0; reload(); });
  part('every').addEventListener('change', () => { for (const l of rows) part('every').checked ? chosen.add(l.seq) : chosen.delete(l.seq); marks(); });
  part('first').addEventListener('click', () => { after = 0; reload(); });
  part('next').addEventListener('click', () => { after = next; reload(); });
  part('retry').addEventListener('click', () => change('retry', {seqs: [...chosen]}));
  part('retry-all').addEventListener('click', () => change('retry', {all: true, ...narrowed}));
  part('purge').addEventListener('click', () => confirm(`${number(chosen.size)} letters will be gone, with their payloads.`, {seqs: [...chosen]}));
  part('purge-all').addEventListener('click', () => confirm(`Every letter that matches will be gone, also those on other pages: ${words()}.`, {all: true, ...narrowed}));
  part('letter-retry').addEventListener('click', () => { close('letter'); change('retry', {seqs: [held.seq]}); });
  part('letter-purge').addEventListener('click', () => { close('letter'); confirm(`Letter ${held.seq} will be gone, with its payload.`, {seqs: [held.seq]}); });
  part('letter-close').addEventListener('click', () => close('letter'));
  part('confirm-no').addEventListener('click', () => close('confirm'));
  part('confirm-yes').addEventListener('click', () => { close('confirm'); change('purge', purging); });

  return s => {
    const d = s.streams.find(st => st.name === 'DEAD');
    const now = d && `${d.messages} ${d.first_seq} ${d.last_seq}`;
    if (known !== undefined && now !== known) reload();
    known = now;
  };
}

export default {title: 'Dead letters', brisk: true, mount};
