// Messages as they are stored.

import {ask, lines, pause, query, shown} from './api.js';
import {clock} from './format.js';

const back = 2000; // messages of the stream that are looked through for recent ones
const long = 2000; // characters of a payload that are shown

/** follow shows the newest max messages of a stream that match, again and again until
 * signal aborts; said gets what is to be known. While nobody sees the page it does
 * not follow: the hub has places for 64 readers. It returns a function that holds and
 * goes on. Only what is shown is decoded, so a fast stream costs little here. */
export function follow({stream, filter, recent, max, show, said, signal}) {
  let kept = [], last = 0, held = false, dirty = true;
  const draw = () => {
    if (!dirty || held) return;
    dirty = false;
    show(kept.map(text => JSON.parse(text)).reverse());
  };
  const timer = setInterval(draw, 250);
  signal.addEventListener('abort', () => clearInterval(timer), {once: true});

  async function from() {
    if (!recent && !last) return 'new';
    const {streams} = await ask('/v1/status', {signal});
    const end = streams.find(s => s.name === stream)?.last_seq ?? 0;
    const first = Math.max(end - back + 1, 1);
    if (last && last + 1 < first) said(`${first - last - 1} messages came meanwhile that are not looked through`);
    return String(Math.max(last + 1, first));
  }

  function take(parts) {
    const good = parts.filter(p => p !== '');
    if (good.length === 0) return;
    kept = [...kept, ...good].slice(-max);
    last = JSON.parse(good.at(-1)).seq;
    dirty = true;
  }

  (async () => {
    for (let fails = 0; !signal.aborted;) {
      await shown(signal);
      if (signal.aborted) return;
      const hidden = new AbortController();
      const look = () => document.visibilityState === 'hidden' && hidden.abort();
      document.addEventListener('visibilitychange', look);
      try {
        const at = await from();
        await lines('/v1/tail' + query({stream, filter, from: at}), AbortSignal.any([signal, hidden.signal]), parts => { fails = 0; take(parts); });
        fails++;
      } catch (error) {
        if (signal.aborted) return;
        if (!hidden.signal.aborted) {
          fails++;
          said(error.status ? error.message : 'The hub does not answer; trying again.');
          if (error.status === 400) return; // of what was asked: again would be the same
        }
      } finally {
        document.removeEventListener('visibilitychange', look);
      }
      if (!hidden.signal.aborted) await pause(Math.min(1000 * 2 ** fails, 15000), signal);
    }
  })();
  return on => { held = on; dirty ||= !on; };
}

/** payload is what a message carries, as text. */
export function payload(m) {
  if (m.payload !== undefined) return m.payload.length > long ? m.payload.slice(0, long) + '…' : m.payload;
  const n = Math.floor(m.payload_b64.length * 3 / 4);
  return m.payload_b64 === '' ? '' : `${n} bytes, base64: ${m.payload_b64.slice(0, 80)}${m.payload_b64.length > 80 ? '…' : ''}`;
}

/** newest is a message's row; with headers if they are to be shown. */
export function newest(m, headers = false) {
  const cells = [
    {text: clock(new Date(m.time)), class: 'time', title: m.time}, {text: m.subject, class: 'code'}, {text: payload(m), class: 'code'},
  ];
  if (headers) cells.push({text: Object.entries(m.headers ?? {}).map(([k, v]) => `${k}: ${v.join(', ')}`).join('\n'), class: 'code wide lines'});
  return {key: m.seq, cells: [...cells, {text: String(m.seq), class: 'n wide'}]};
}
