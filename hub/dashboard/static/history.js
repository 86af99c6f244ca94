// What the status said since the page was opened, for charts and rates.

const keep = 900; // samples: half an hour of them

/** samples are columns: t in s, messages and blocks per s, backlog in messages. */
export const samples = {t: [], rate: [], blocks: [], backlog: []};

let seen = []; // of the last ten seconds: {t, messages, blocks}

/** note adds a status. */
export function note(s, t = Date.now() / 1000) {
  const routes = new Set(s.routes.filter(r => !r.packed).map(r => r.stream));
  const messages = s.streams.filter(st => routes.has(st.name)).reduce((n, st) => n + st.last_seq, 0);
  const now = {t, messages, blocks: s.ledger.seq};
  const before = seen.at(-1);
  const rate = per(before, now, 'messages');
  if (before && rate === null) seen = []; // a stream was made anew, or the computer slept
  seen.push(now);
  while (seen.length > 2 && seen[1].t <= t - 10) seen.shift();
  const columns = {t, rate, blocks: per(before, now, 'blocks'), backlog: s.devices.backlog};
  for (const [name, column] of Object.entries(samples)) {
    column.push(columns[name]);
    if (column.length > keep) column.shift();
  }
}

function per(from, to, what) {
  if (!from || to.t - from.t > 60 || to.t <= from.t || to[what] < from[what]) return null;
  return (to[what] - from[what]) / (to.t - from.t);
}

/** recent is the average of the last ten seconds or so; null before there is one. */
export const recent = what => (seen.length > 1 ? per(seen[0], seen.at(-1), what) : null);
