// A device's desired settings, and the form that changes them. The change is laid
// over what is set for the device, so that what somebody else sets meanwhile stays.
// Hubs without desired settings answer 404, and the page then shows nothing of them.

import {ask, poll, Refused} from './api.js';
import {badge, say, table} from './dom.js';
import {ago, clock, date} from './format.js';

const words = {none: 'nothing is wanted', not_yet: 'not yet', trial: 'on trial', applied: 'in effect', refused: 'refused', too_large: 'too large'};
const kinds = {trial: 'warn', applied: 'good', refused: 'bad', too_large: 'bad'};

/** desired fills the part of the page of the device at path. */
export function desired(part, path, signal) {
  const url = `${path}/desired`, form = part('desire');
  let absent = false;
  const again = poll(async () => {
    if (absent) return;
    let d;
    try {
      d = await ask(url, {signal});
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 404) throw error;
      absent = true;
      return;
    }
    part('desired-part').hidden = false;
    badge(part('desired-state'), words[d.state] ?? d.state, kinds[d.state]);
    say(part('desired-reason'), [d.reason, d.report ? `the device said so ${ago(date(d.report.heard))}` : ''].filter(Boolean).join(' · '));
    say(part('desired-merged'), d.merged ? JSON.stringify(d.merged, null, 2) : 'more than a device takes');
    table(part('desired-documents'), (d.documents ?? []).map(doc => ({key: doc.revision, cells: [
      {text: doc.device ?? doc.label, head: true}, {text: String(doc.revision), class: 'n'}, {text: doc.by}, {text: clock(date(doc.at)), class: 'time'},
    ]})), 'nothing is set for it or its labels');
  }, () => (absent ? 3600e3 : 4000), signal);

  form.addEventListener('submit', async event => {
    event.preventDefault();
    let body;
    try {
      body = JSON.parse(form.elements.change.value);
    } catch (error) {
      return say(part('desired-set'), `This is not JSON: ${error.message}`);
    }
    const send = form.querySelector('button');
    send.disabled = true;
    try {
      const doc = await ask(url, {method: 'PATCH', body, signal});
      say(part('desired-set'), `Set, as revision ${doc.revision}`);
    } catch (error) {
      if (!signal.aborted) say(part('desired-set'), `Not set: ${error.message}`);
    } finally {
      send.disabled = false;
    }
    again();
  });
}
