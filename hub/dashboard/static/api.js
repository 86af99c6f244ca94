// Every request of the dashboard goes through here.

/** Refused is an answer of the hub that says no, in its own words. */
export class Refused extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

/** open sends a request. The one place for a bearer token, once the hub wants one:
 * it belongs into headers here. */
async function open(path, {method = 'GET', body, signal} = {}) {
  const headers = {Accept: 'application/json'};
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const answer = await fetch(path, {
    method, headers, signal, cache: 'no-store', redirect: 'error', credentials: 'same-origin',
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, problem.code ?? '', problem.detail ?? `the hub answers ${answer.status}`);
}

/** ask returns the hub's JSON; past the timeout (ms) it fails. */
export async function ask(path, {signal, timeout = 15000, ...rest} = {}) {
  const limit = AbortSignal.timeout(timeout);
  const answer = await open(path, {...rest, signal: signal ? AbortSignal.any([signal, limit]) : limit});
  return answer.status === 204 ? null : answer.json();
}

/** query writes parameters; empty ones are left out. */
export function query(params) {
  const q = new URLSearchParams(Object.entries(params).filter(([, v]) => v !== '' && v !== undefined && v !== null));
  const text = q.toString();
  return text && `?${text}`;
}

/** lines calls take with the lines of an answer that goes on, as they come. */
export async function lines(path, signal, take) {
  const answer = await open(path, {signal});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ''; ;) {
    const {value, done} = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n');
    rest = parts.pop();
    if (parts.length > 0) take(parts);
  }
}

const failing = new Map();
let toldOf = () => {};

/** onTrouble is told of the last thing that fails, or of null when nothing does. */
export function onTrouble(fn) { toldOf = fn; }

function trouble(who, error) {
  if (error) failing.set(who, error);
  else if (!failing.delete(who)) return;
  toldOf([...failing.values()].pop() ?? null);
}

const visible = () => document.visibilityState === 'visible';

/** shown resolves when the page can be seen, or signal aborts. */
export function shown(signal) {
  if (visible() || signal.aborted) return Promise.resolve();
  return new Promise(done => {
    const look = () => {
      if (!visible() && !signal.aborted) return;
      document.removeEventListener('visibilitychange', look);
      done();
    };
    document.addEventListener('visibilitychange', look);
    signal.addEventListener('abort', look, {once: true});
  });
}

/** pause waits, shorter if signal or wake aborts. */
export function pause(ms, ...signals) {
  const signal = AbortSignal.any(signals);
  return new Promise(done => {
    if (signal.aborted) return done();
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', () => { clearTimeout(timer); done(); }, {once: true});
  });
}

/** poll calls fn now and then every() ms after each call has ended, while the page
 * can be seen and until signal aborts; less often while it fails. It returns a
 * function that makes the next call come at once. */
export function poll(fn, every, signal) {
  let wake = new AbortController();
  (async () => {
    for (let fails = 0; !signal.aborted;) {
      await shown(signal);
      if (signal.aborted) break;
      wake = new AbortController();
      try {
        await fn();
        fails = 0;
        trouble(fn, null);
      } catch (error) {
        if (signal.aborted) break;
        fails++;
        trouble(fn, error);
      }
      await pause(Math.max(every(), Math.min(1000 * 2 ** fails, 15000) * Math.sign(fails)), signal, wake.signal);
    }
    trouble(fn, null);
  })();
  return () => wake.abort();
}
