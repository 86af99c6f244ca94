// Where one message of a device is.

import {ask, query} from './api.js';
import {badge, button, say, table} from './dom.js';
import {clock, date, number} from './format.js';

const kinds = {stored: 'good', packed: 'good', waiting: 'warn', unrouted: 'warn', gap: 'bad', damaged: 'bad', dead: 'bad', removed: 'warn'};
const numbered = /^([0-9a-f]{16})\/(urgent|normal|bulk)\/([0-9]+)$/;

/** trace makes the form of the page of the device at path work, asks at once for
 * what, if it is given, and returns a function that makes a message's button. */
export function trace(part, path, signal, what) {
  const form = part('trace'), box = form.elements.message, said = text => say(part('traced'), text);
  let end = new AbortController();

  async function look() {
    const text = box.value.trim(), m = numbered.exec(text);
    if (!text) return;
    end.abort();
    end = new AbortController();
    part('trace-part').hidden = true;
    said('Looking …');
    try {
      const asked = m ? {epoch: m[1], lane: m[2], seq: m[3]} : {id: text};
      show(part, await ask(`${path}/trace` + query(asked), {signal: AbortSignal.any([signal, end.signal]), timeout: 30000}));
      said('');
    } catch (error) {
      if (error.name !== 'AbortError') said(error.status ? error.message : 'The hub does not answer; try again.');
    }
  }
  form.addEventListener('submit', event => { event.preventDefault(); look(); });
  const lookFor = text => { box.value = text; look(); };
  if (what) lookFor(what);
  return headers => {
    const one = name => headers?.[`Fieldpost-${name}`]?.[0];
    const b = button('Trace', () => { lookFor(`${one('Epoch')}/${one('Lane') ?? 'normal'}/${one('Seq')}`); form.scrollIntoView({block: 'nearest'}); box.focus(); }, 'link');
    b.setAttribute('aria-label', `Trace message ${one('Seq')}`);
    return b;
  };
}

function show(part, t) {
  part('trace-part').hidden = false;
  const name = t.epoch ? `${t.epoch}/${t.lane}/${t.seq}` : t.id;
  say(part('trace-name'), [name, t.epoch && t.id ? `id ${t.id}` : '', t.subject ?? ''].filter(Boolean).join(' · '));
  badge(part('trace-state'), t.state.replaceAll('_', ' '), kinds[t.state] ?? '');
  table(part('trace-steps'), t.steps.map((s, i) => ({key: i, cells: [
    {text: s.hop, head: true}, s.state.replaceAll('_', ' '), {text: date(s.time) ? clock(date(s.time)) : '', class: 'time'}, {text: s.text, class: 'words'},
  ]})), 'nothing is known');
  const looked = (t.searched ?? []).map(s => `${number(s.messages)} messages of ${s.stream}${s.complete ? '' : ', not all of it'}`);
  say(part('trace-searched'), looked.length ? `Looked through: ${looked.join('; ')}.` : '');
}
