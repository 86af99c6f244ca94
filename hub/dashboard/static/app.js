// The shell: which page is shown, what all pages show, and the status that they share.
//
// A page is {title, brisk, mount(context)}. mount fills context.main and may return
// a function that gets every status. brisk pages get one every two seconds, the
// others, which ask for something of their own at that pace, every ten.

import {ask, onTrouble, poll} from './api.js';
import {badge, say} from './dom.js';
import {note} from './history.js';
import overview from './overview.js';
import devices from './devices.js';
import device from './device.js';
import streams from './streams.js';
import dead from './dead.js';
import tail from './tail.js';
import audit from './audit.js';

const main = document.getElementById('main');
const pages = {'': overview, devices, streams, dead, tail, audit};
let current = {end: new AbortController(), page: overview, status: null};
let latest = null; // status
let wake = () => {};

/** where reads the address: #/devices?filter=x is the page devices, #/devices/press-7
 * one device's. */
function where() {
  const [path, search] = location.hash.replace(/^#\/?/, '').split('?');
  const [name, id] = path.split('/').map(decodeURIComponent);
  return {page: name === 'devices' && id ? device : pages[name] ?? overview, name, id, query: new URLSearchParams(search)};
}

function show(first) {
  current.end.abort();
  const {page, name, id, query} = where();
  const end = new AbortController();
  main.replaceChildren();
  const status = page.mount({main, id, query, signal: end.signal, latest: () => latest, announce});
  current = {end, page, status};
  document.title = `${id ?? page.title} · Fieldpost`;
  for (const a of document.querySelectorAll('.top nav a')) {
    const here = a.getAttribute('href') === `#/${pages[name] ? name : ''}`;
    here ? a.setAttribute('aria-current', 'page') : a.removeAttribute('aria-current');
  }
  if (latest && status) status(latest);
  wake();
  if (!first) {
    main.focus({preventScroll: true});
    scrollTo(0, 0);
  }
}

/** announce tells a screen reader, and only when something new is to be said. */
function announce(text) {
  say(document.getElementById('announce'), text);
}

let announced = 0;

function onStatus(s) {
  const before = latest;
  latest = s;
  note(s);
  badge(document.getElementById('ready'), s.ready ? 'ready' : 'not ready', s.ready ? 'good' : 'bad');
  const about = {hub: s.hub_id, instance: s.instance, version: s.version, 'agents and back ends connect to': s.nats};
  say(document.getElementById('about'), Object.entries(about).filter(([, v]) => v).map(([k, v]) => `${k} ${v}`).join(' · '));
  const changed = before && (before.ready !== s.ready || before.devices.online !== s.devices.online);
  if (changed || Date.now() - announced > 30000) { // numbers that move all the time would never let a reader finish
    announced = Date.now();
    announce(`Hub ${s.ready ? 'ready' : 'not ready'}, ${s.devices.online} of ${s.devices.total} devices online, backlog ${s.devices.backlog} messages`);
  }
  current.status?.(s);
}

onTrouble(error => {
  const box = document.getElementById('trouble');
  document.body.classList.toggle('stale', error !== null);
  box.hidden = error === null;
  say(box, error === null ? '' : `${error.status ? error.message : 'The hub does not answer'}. What you see is not up to date; trying again.`);
  if (error && !error.status) badge(document.getElementById('ready'), 'no answer', 'bad');
});

document.getElementById('skip').addEventListener('click', event => {
  event.preventDefault(); // the address names the page
  main.focus();
});
addEventListener('hashchange', () => show(false));
show(true);
wake = poll(async () => onStatus(await ask('/v1/status')), () => (current.page.brisk ? 2000 : 10000), new AbortController().signal);
