// The table of devices, a page of it at a time: the hub searches and sorts.

import {ask, poll, query} from './api.js';
import {page, say, table} from './dom.js';
import {backlog, dropped, heard, link, oldest, state, trouble, waiting} from './fleet.js';
import {number} from './format.js';

const pageOf = 100;
const ascending = {name: true}; // the others have the most, or the longest ago, first

function mount({main, query: params, signal, announce}) {
  const {root, part} = page('devices');
  main.append(root);
  let filter = params.get('filter') ?? '', sort = params.get('sort') || 'name';
  let afters = ['']; // of the pages up to the one that is shown
  let next;
  const box = part('search').elements.filter;
  box.value = filter;

  // What goes through all devices is not asked for every two seconds.
  const cheap = () => sort === 'name' && (filter === '' || filter === 'state=online' || filter === 'state=offline');
  const again = poll(async () => {
    const asked = {filter, sort: sort === 'name' ? '' : sort, after: afters.at(-1), limit: pageOf};
    const answer = await ask('/v1/devices' + query(asked), {signal});
    if (asked.filter === filter && asked.sort === (sort === 'name' ? '' : sort) && asked.after === afters.at(-1)) fill(answer);
  }, () => (cheap() ? 2000 : 10000), signal);

  function fill(answer) {
    next = answer.next;
    table(part('rows'), answer.devices.map(row), filter ? 'no device matches' : 'no device has been heard of yet');
    const from = (afters.length - 1) * pageOf;
    const shown = answer.devices.length ? `${number(from + 1)} to ${number(from + answer.devices.length)} of ` : '';
    say(part('count'), `${shown}${number(answer.total)} devices, ${number(answer.online)} of them online${answer.loading ? '; the hub is still reading its list: there are more' : ''}`);
    part('first').disabled = part('previous').disabled = afters.length === 1;
    part('next').disabled = !next;
    say(part('pace'), cheap() ? '' : 'Refreshed every ten seconds: the hub goes through all devices for this.');
    for (const b of root_('[data-filter]')) b.setAttribute('aria-pressed', String(b.dataset.filter === filter));
    for (const b of root_('[data-sort]')) {
      const th = b.closest('th');
      b.dataset.sort === sort ? th.setAttribute('aria-sort', ascending[sort] ? 'ascending' : 'descending') : th.removeAttribute('aria-sort');
    }
  }
  const root_ = selector => main.querySelectorAll(selector);

  function turn(to) {
    afters = to;
    history.replaceState(null, '', '#/devices' + query({filter, sort: sort === 'name' ? '' : sort}));
    again();
  }
  const search = text => { filter = box.value = text.trim(); turn(['']); };
  part('search').addEventListener('submit', event => { event.preventDefault(); search(box.value); });
  box.addEventListener('search', () => search(box.value)); // the cross that empties it
  for (const b of root_('[data-filter]')) b.addEventListener('click', () => search(b.dataset.filter));
  for (const b of root_('[data-sort]')) b.addEventListener('click', () => { sort = b.dataset.sort; turn(['']); announce(`sorted by ${b.textContent}`); });
  part('first').addEventListener('click', () => turn(['']));
  part('previous').addEventListener('click', () => turn(afters.slice(0, -1)));
  part('next').addEventListener('click', () => next && turn([...afters, next]));
}

function row(d) {
  const w = waiting(d), lost = dropped(d);
  const labels = Object.entries(d.labels ?? {}).map(([k, v]) => `${k}=${v}`).join(' ');
  return {key: d.device, cells: [
    {text: d.device, href: link(d), head: true}, state(d), backlog(w.messages), oldest(w.oldest), heard(d),
    {text: number(lost), class: 'n wide'}, {text: d.version, class: 'wide'}, {text: labels, class: 'wide'}, {text: trouble(d), class: 'badtext'},
  ]};
}

export default {title: 'Devices', mount};
