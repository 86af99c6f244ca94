// One device: what it holds, what is known of it, when it was online, its commands
// and its messages.

import {ask, poll} from './api.js';
import {chart} from './chart.js';
import {commands} from './commands.js';
import {desired} from './desired.js';
import {badge, page, say, table} from './dom.js';
import {dropped} from './fleet.js';
import {ago, bytes, clock, date, number, span} from './format.js';
import {follow, newest} from './follow.js';
import {links} from './links.js';
import {trace} from './trace.js';

const lanes = ['urgent', 'normal', 'bulk'];
const keep = 1800; // samples: an hour

function mount({main, id, query, signal, announce}) {
  const {root, part} = page('device');
  main.append(root);
  const path = `/v1/devices/${encodeURIComponent(id)}`;
  say(part('name'), id);
  const plot = chart(part('chart'), {label: 'Backlog by lane', series: lanes.map((name, i) => ({name, color: `--c${[2, 1, 3][i]}`}))}, signal);
  const columns = [[], ...lanes.map(() => [])];
  let online;
  poll(async () => {
    const d = await ask(path, {signal});
    fill(part, d);
    links(part, d);
    if (online !== undefined && online !== d.online) announce(`${id} is ${d.online ? 'online' : 'offline'}`);
    online = d.online;
    [Date.now() / 1000, ...lanes.map(l => d.backlog?.[l]?.messages ?? 0)].forEach((v, i) => {
      columns[i].push(v);
      if (columns[i].length > keep) columns[i].shift();
    });
    plot.draw(...columns);
  }, () => 2000, signal);
  commands(part, path, signal);
  desired(part, path, signal);
  recentMessages(part, id, signal, trace(part, path, signal, query.get('trace')));
}

function fill(part, d) {
  badge(part('state'), d.online ? 'online' : 'offline', d.online ? 'good' : '');
  say(part('since'), `${d.online ? 'Online' : 'Offline'} since ${clock(date(d.since))}, last heard of ${ago(date(d.seen))}`);
  const wrong = [];
  if (d.last_error) wrong.push(`${d.last_error.text} (${clock(date(d.last_error.at))}, by the device's clock)`);
  if (d.clones) wrong.push(`It came ${number(d.clones.reports)} times with a state that is not the one it left with, last at ${clock(date(d.clones.last))}: a copy of its disk, a restored backup, or a wiped spool.`);
  if (d.quarantine) wrong.push(`${number(d.quarantine)} damaged segments are in quarantine; on the device: fieldpost-agent spool quarantine`);
  part('trouble').hidden = wrong.length === 0;
  say(part('trouble'), wrong.join(' · '));
  table(part('lanes'), Object.entries(d.backlog ?? {}).sort(([a], [b]) => lanes.indexOf(a) - lanes.indexOf(b)).map(([lane, b]) => ({key: lane, cells: [
    {text: lane, head: true}, {text: number(b.messages), class: 'n'}, {text: bytes(b.bytes), class: 'n'},
    {text: b.messages && b.oldest ? `${span(Date.now() - b.oldest)}, since ${clock(new Date(b.oldest))}` : '–', class: 'time'},
  ]})), 'nothing is known yet');
  say(part('every'), d.every ? `As the device said last; it does so every ${span(d.every * 1000)}.` : '');
  const facts = {
    'Agent': d.version, 'Kind of link': d.class, 'Started': clock(date(d.started)), 'Epoch': d.epoch, 'First heard of': clock(date(d.created)),
    'Spool': d.disk?.max ? `${bytes(d.disk.used)} of ${bytes(d.disk.max)}` : '', 'Clock': offset(d.clock_offset_ms),
    'Hub instance': d.instance, 'Last file imported': date(d.imported) ? clock(date(d.imported)) : '',
  };
  pairs(part('facts'), facts);
  pairs(part('labels'), d.labels ?? {}, 'none');
  table(part('dropped'), Object.entries(d.dropped ?? {}).filter(([, n]) => n > 0).map(([reason, n]) => ({
    key: reason, cells: [{text: reason, head: true}, {text: number(n), class: 'n'}],
  })), dropped(d) ? '' : 'nothing was dropped');
}

function pairs(body, values, empty) {
  table(body, Object.entries(values).filter(([, v]) => v !== undefined && (v !== '' || empty)).map(([k, v]) => ({key: k, cells: [{text: k, head: true}, v]})), empty);
}

function offset(ms) {
  if (ms === undefined || ms === null) return '';
  if (Math.abs(ms) < 1000) return 'within a second of the hub\'s';
  return `${span(Math.abs(ms))} ${ms > 0 ? 'before' : 'behind'} the hub's`;
}

/** recentMessages follows the device in the stream that takes most messages. */
async function recentMessages(part, id, signal, tracing) {
  const said = text => say(part('tail-state'), text);
  const traced = (row, m) => ({...row, cells: [...row.cells, {make: () => tracing(m.headers)}]});
  poll(async () => { // until it worked once
    if (part('messages').dataset.on) return;
    const {routes} = await ask('/v1/status', {signal});
    const route = routes.findLast(r => !r.packed);
    part('messages').dataset.on = '1';
    if (!route) return said('All routes are packed: there is no stream of single messages.');
    const filter = `${route.prefix}.${id}.>`;
    said(`Messages in ${route.stream}: ${filter}`);
    follow({stream: route.stream, filter, recent: true, max: 50, signal, said,
      show: messages => table(part('messages'), messages.map(m => traced(newest(m), m)), `none of the newest 2,000 of ${route.stream} is from this device`)});
  }, () => (part('messages').dataset.on ? 3600e3 : 2000), signal);
}

export default {title: 'Device', mount};
