// How full the streams are, and how far the routes.

import {ask, poll} from './api.js';
import {page, say, table} from './dom.js';
import {bytes, number, span} from './format.js';

function mount({main, signal}) {
  const {root, part} = page('streams');
  main.append(root);
  poll(async () => fill(part, await ask('/v1/routes', {signal})), () => 2000, signal);
  return s => {
    table(part('streams'), s.streams.map(stream));
    const hooks = s.webhooks ?? [];
    part('hooks-part').hidden = hooks.length === 0;
    table(part('hooks'), hooks.map(h => ({key: h.name, cells: [
      {text: h.name, head: true}, h.stream, h.url, h.error ? {text: h.error, class: 'badtext'} : {text: 'ok', badge: 'good'},
    ]})));
  };
}

function stream(st) {
  const limited = st.max_bytes > 0, share = limited ? st.bytes / st.max_bytes : 0;
  return {key: st.name, cells: [
    {text: st.name, head: true}, {text: number(st.messages), class: 'n'}, {text: bytes(st.bytes), class: 'n'},
    {text: limited ? bytes(st.max_bytes) : 'none', class: 'n'},
    limited ? {meter: {value: st.bytes, max: st.max_bytes, label: `${st.name} is ${(share * 100).toFixed(1)} % full`}} : '–',
    {text: String(st.first_seq), class: 'n wide'}, {text: String(st.last_seq), class: 'n wide'},
  ]};
}

function fill(part, {routes, orphaned_streams: orphans, unrouted}) {
  table(part('routes'), routes.map((r, i) => ({key: i, cells: [
    {text: r.match, class: 'code', head: true}, r.packed ? 'stays packed' : r.stream, {text: r.packed ? '' : `${r.prefix}.<device>.…`, class: 'code'},
    {text: r.packed ? '–' : number(r.lag_blocks), class: 'n'}, {text: number(r.lost_blocks ?? 0), class: 'n wide'},
    {text: r.max_age_seconds ? span(r.max_age_seconds * 1000) : 'ever', class: 'n wide'},
    {text: r.discard === 'old' ? 'the oldest go' : r.discard === 'new' ? 'takes no more' : '–', class: 'wide'}, routeState(r),
  ]})));
  part('unrouted').hidden = unrouted.messages === 0;
  say(part('unrouted'), `${number(unrouted.messages)} messages were taken by no route, the newest with subject ${unrouted.subject}.`);
  part('orphans-part').hidden = orphans.length === 0;
  table(part('orphans'), orphans.map(o => ({key: o.name, cells: [
    {text: o.name, head: true}, {text: o.subjects.join(' '), class: 'code'}, {text: number(o.messages), class: 'n'}, {text: bytes(o.bytes), class: 'n'}, {text: number(o.lag_blocks), class: 'n'},
  ]})));
}

function routeState(r) {
  if (r.error) return {text: r.error, class: 'badtext'};
  if (r.backfill) {
    const all = r.backfill.last_block - r.backfill.first_block + 1, done = Math.max(0, r.backfill.next_block - r.backfill.first_block);
    return `back-fill: ${number(done)} of ${number(all)} blocks`;
  }
  return {text: r.lag_blocks > 0 ? 'behind' : 'ok', badge: r.lag_blocks > 0 ? 'warn' : 'good'};
}

export default {title: 'Streams and routes', mount};
