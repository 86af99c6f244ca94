// The fleet at a glance.

import {ask, poll} from './api.js';
import {chart} from './chart.js';
import {list, page, say, table} from './dom.js';
import {backlog, heard, link, oldest, state, waiting} from './fleet.js';
import {number, rate, span} from './format.js';
import {recent, samples} from './history.js';

function mount({main, signal}) {
  const {root, part} = page('overview');
  main.append(root);
  const rates = chart(part('rate-chart'), {label: 'Messages stored a second', series: [{name: 'messages a second', color: '--c1'}]}, signal);
  const backlogs = chart(part('backlog-chart'), {label: 'Backlog at devices', series: [{name: 'messages', color: '--c2'}]}, signal);
  poll(async () => longest(part, await ask('/v1/devices?sort=oldest&limit=8', {signal})), () => 10000, signal);
  return s => {
    say(part('online'), `${number(s.devices.online)} of ${number(s.devices.total)}${s.devices.loading ? ' or more' : ''}`);
    say(part('backlog'), number(s.devices.backlog));
    say(part('rate'), rate(recent('messages')));
    say(part('blocks'), rate(recent('blocks')));
    say(part('dead'), number(s.streams.find(st => st.name === 'DEAD')?.messages ?? 0));
    list(part('reasons-part'), part('reasons'), s.reasons);
    list(part('notes-part'), part('notes'), [...(s.notes ?? []), ...(s.webhooks ?? []).filter(w => w.error).map(w => `webhook ${w.name}: ${w.error}`)]);
    rates.draw(samples.t, samples.rate);
    backlogs.draw(samples.t, samples.backlog);
  };
}

function longest(part, {devices}) {
  const holding = devices.map(d => ({d, w: waiting(d)})).filter(({w}) => w.oldest !== null);
  say(part('oldest'), holding.length ? span(Date.now() - holding[0].w.oldest) : 'none');
  table(part('longest'), holding.map(({d, w}) => ({
    key: d.device,
    cells: [{text: d.device, href: link(d), head: true}, state(d), backlog(w.messages), oldest(w.oldest), heard(d)],
  })), 'no device holds anything');
}

export default {title: 'Overview', brisk: true, mount};
