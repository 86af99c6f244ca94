// Messages of a stream as they come.

import {page, say, table} from './dom.js';
import {follow, newest} from './follow.js';

const max = 200;

function mount({main, query: params, signal}) {
  const {root, part} = page('tail');
  main.append(root);
  const form = part('search'), {stream, filter, from} = form.elements;
  const said = text => say(part('tail-state'), text);
  filter.value = params.get('filter') ?? '';
  let end = new AbortController(), hold = () => {}, started = false;

  const paused = on => {
    part('pause').setAttribute('aria-pressed', String(on));
    say(part('pause'), on ? 'Go on' : 'Pause');
    hold(on);
  };
  function start() {
    end.abort();
    end = new AbortController();
    const text = filter.value.trim();
    said(`Following ${stream.value}${text ? `: ${text}` : ''}; the newest ${max} are shown.`);
    table(part('messages'), [], 'nothing yet');
    hold = follow({stream: stream.value, filter: text, recent: from.value === 'recent', max, signal: AbortSignal.any([signal, end.signal]), said,
      show: messages => table(part('messages'), messages.map(m => newest(m, true)), 'nothing yet')});
    paused(false);
  }
  form.addEventListener('submit', event => { event.preventDefault(); if (stream.value) start(); });
  part('pause').addEventListener('click', () => paused(part('pause').getAttribute('aria-pressed') !== 'true'));
  signal.addEventListener('abort', () => end.abort(), {once: true});

  return s => {
    if (started) return;
    const names = s.routes.filter(r => !r.packed).map(r => r.stream);
    stream.replaceChildren(...names.map(name => new Option(name, name)));
    if (names.length === 0) return said('All routes are packed: there is no stream of single messages.');
    stream.value = names.includes(params.get('stream')) ? params.get('stream') : names.at(-1); // what the others leave
    started = true;
    start();
  };
}

export default {title: 'Live tail', mount};
