// Who changed what: each change with how it ended, the newest first.

import {ask, poll, query} from './api.js';
import {page, say, table} from './dom.js';
import {ago, clock, date} from './format.js';

const pageOf = 50; // changes
const loadOf = 200; // entries; a change has two

function mount({main, query: params, signal}) {
  const {root, part} = page('audit');
  main.append(root);
  const box = part('search').elements.action;
  box.value = params.get('action') ?? '';
  let held = fresh(box.value);

  /** fresh holds nothing yet of an action's changes; tops are the first ones of the
   * pages up to the one that is shown. */
  function fresh(action) {
    return {action, changes: new Map(), newest: 0, oldest: 0, more: true, tops: [Infinity]};
  }

  // Every entry that is younger than the oldest one that is shown is held, so that
  // an outcome is not missed that stands on another page.
  async function load(h) {
    const older = async () => {
      const answer = await ask('/v1/audit' + query({order: 'newest', action: h.action, before: h.oldest || '', limit: loadOf}), {signal});
      take(h, answer.entries);
      h.more = answer.next !== undefined;
    };
    if (h.oldest === 0) await older();
    else {
      for (let next = h.newest; next;) {
        const answer = await ask('/v1/audit' + query({action: h.action, after: next, limit: 1000}), {signal});
        take(h, answer.entries);
        next = answer.next;
      }
    }
    while (h.more && listed(h).length <= pageOf) await older();
    if (h === held) draw(h);
  }
  const again = poll(() => load(held), () => 2000, signal);

  function draw(h) {
    const rows = listed(h);
    table(part('rows'), rows.slice(0, pageOf).map(row), h.action ? 'no such change is known' : 'nobody has changed anything yet');
    part('first').disabled = part('previous').disabled = h.tops.length === 1;
    part('next').disabled = rows.length <= pageOf;
  }

  part('search').addEventListener('submit', event => {
    event.preventDefault();
    held = fresh(box.value.trim());
    history.replaceState(null, '', '#/audit' + query({action: held.action}));
    again();
  });
  const turn = tops => { held.tops = tops; draw(held); again(); };
  part('first').addEventListener('click', () => turn([Infinity]));
  part('previous').addEventListener('click', () => turn(held.tops.slice(0, -1)));
  part('next').addEventListener('click', () => turn([...held.tops, listed(held)[pageOf].seq]));
  say(part('pages'), `${pageOf} changes a page`);
}

function take(h, entries) {
  for (const e of entries) {
    const seq = e.of ?? e.seq;
    const change = h.changes.get(seq) ?? {seq};
    e.of ? change.end = e : change.begun = e;
    h.changes.set(seq, change);
    h.newest = Math.max(h.newest, e.seq);
    h.oldest = h.oldest === 0 ? e.seq : Math.min(h.oldest, e.seq);
  }
}

/** listed are the changes from the page's first one on. One whose beginning is not
 * read yet waits for it; if the stream let it go, its end stands alone. */
function listed(h) {
  return [...h.changes.values()].filter(c => c.seq <= h.tops.at(-1) && (c.begun || !h.more)).sort((a, b) => b.seq - a.seq);
}

function row({seq, begun, end}) {
  const e = begun ?? end, at = date(e.time);
  const [word, ...rest] = (end ?? begun).outcome.split(': ');
  const open = !end && word === 'begun';
  const detail = open ? `begun ${ago(at)}; if the hub was stopped before it wrote down the outcome, it is not known` : rest.join(': ');
  return {key: seq, cells: [
    {text: clock(at), class: 'time', title: e.time}, {text: e.action.replaceAll('_', ' '), head: true},
    open ? {text: 'no outcome yet', badge: 'warn'} : {text: word, badge: word === 'done' ? 'good' : 'bad'},
    {text: e.object, class: 'code'}, {text: detail, class: 'words'}, e.actor, {text: end && begun ? `${begun.seq}, ${end.seq}` : String(e.seq), class: 'n wide'},
  ]};
}

export default {title: 'Audit', mount};
