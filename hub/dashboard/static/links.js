// When a device was online: its last changes as a table, and as a band over time.

import {say, table} from './dom.js';
import {clock, date, span} from './format.js';

const words = {
  session_opened: 'it opened a session', heartbeat: 'a heartbeat came', session_ended: 'it ended its session', connection_lost: 'the connection was lost',
  heartbeats_stopped: 'its heartbeats stopped', hub_restarted: 'it did not come back after the hub had started',
};

const wide = 1000; // units of the band
const thin = 3; // a change is never narrower

/** links fills the part of a device's page. */
export function links(part, d) {
  const now = Date.now();
  const list = (d.links ?? []).map((k, i, all) => ({...k, from: +date(k.at), to: i + 1 < all.length ? +date(all[i + 1].at) : now}));
  table(part('links'), list.map((k, i) => ({key: `${k.at} ${k.online} ${i}`, cells: [
    {text: clock(date(k.at)), class: 'time', head: true, title: k.at}, {text: k.online ? 'online' : 'offline', badge: k.online ? 'good' : 'bad'},
    {text: span(k.to - k.from), class: 'time'}, {text: words[k.reason] ?? k.reason ?? 'not known', class: 'words'},
  ]})).reverse(), 'none is known yet');
  const known = list.length > 0 && now > list[0].from;
  part('band-part').hidden = !known;
  if (!known) return;
  const all = now - list[0].from, down = list.filter(k => !k.online);
  const off = down.reduce((sum, k) => sum + k.to - k.from, 0);
  say(part('band-from'), clock(new Date(list[0].from)));
  const svg = part('band');
  const text = `online for ${((1 - off / all) * 100).toFixed(1)} % of the last ${span(all)}, ${down.length === 1 ? 'one outage' : `${down.length} outages`}`;
  say(part('band-text'), text);
  svg.setAttribute('aria-label', text);
  svg.replaceChildren(...[...list.filter(k => k.online), ...down].map(k => {
    const rect = document.createElementNS(svg.namespaceURI, 'rect');
    const x = (k.from - list[0].from) / all * wide, width = Math.max((k.to - k.from) / all * wide, thin);
    for (const [name, value] of Object.entries({x: Math.min(x, wide - width), y: 0, width, height: 20, class: k.online ? 'up' : 'down'})) rect.setAttribute(name, value);
    return rect;
  }));
}
