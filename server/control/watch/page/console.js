// The page of /ui. What comes from the guard gets into the document as text only.
const eventsMax = 1000, rowsAtOnce = 100, pageRows = 50, statusEveryMs = 2000, silenceMaxMs = 25000;
const byId = (id) => document.getElementById(id);
let bearer = '';          // in memory only
let tokenGiven = null;    // tells those that wait for a token
let guard = null;         // its status
let clockAhead = 0;       // of the guard's clock, in ms
let events = [];          // the newest first
let rowsShown = rowsAtOnce, unseen = 0;
let lastId = '';
let awaySince = null;
let view = {kind: '', resource: '', before: [], after: '', next: null};

// ---- the document

function node(kind, properties, ...children) {
  const made = Object.assign(document.createElement(kind), properties);
  made.append(...children);
  return made;
}
function fill(place, ...children) { place.replaceChildren(...children); }
// The keyboard stands in it: what is made anew there would lose it.
const isInUse = (id) => byId(id).contains(document.activeElement);

// What would hide, move or turn round the text beside it, by its number.
const hidden = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e0fff}]/gu;
const numbered = (text) => text.replace(hidden, (c) => `‹U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}›`);
function nameOf(resource) {
  const parts = numbered(resource).split(/(‹U\+[0-9A-F]+›)/);
  return node('bdi', {className: 'name'}, ...parts.map((part, i) => i % 2 ? node('span', {className: 'mark'}, part) : part));
}
const pathOf = (resource) => resource.split('/').map(encodeURIComponent).join('/');
function linkTo(resource) {
  if (resource === '*') return node('span', {}, 'every resource');
  return node('a', {href: '#/resource/' + encodeURIComponent(resource)}, nameOf(resource));
}
function figures(place, entries) {
  fill(place, ...entries.map(([name, value, tone]) =>
    node('div', {className: tone || ''}, node('dt', {}, name), node('dd', {}, value))));
}
function table(heads, rows) {
  if (rows.length === 0) return node('p', {}, 'none');
  return node('table', {},
    node('thead', {}, node('tr', {}, ...heads.map((head) => node('th', {scope: 'col'}, head)))),
    node('tbody', {}, ...rows.map((cells) => node('tr', {}, ...cells.map((cell) => node('td', {}, cell))))));
}

// ---- times

const guardNow = () => Date.now() + clockAhead;
function span(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}
const clock = (time) => new Date(time).toLocaleTimeString([], {hour12: false});
function when(time) {
  const isToday = new Date(time).toDateString() === new Date(guardNow()).toDateString();
  const text = isToday ? clock(time) : new Date(time).toLocaleString([], {hour12: false});
  return node('time', {dateTime: time, title: new Date(time).toString()}, text);
}
// A time left that goes on by itself between two looks.
function countdown(ms) {
  const until = Date.now() + ms;
  return node('span', {className: 'countdown', until}, span(ms));
}

// ---- the guard

class Refused extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}
async function call(method, path, signal) {
  for (;;) {
    if (tokenGiven?.isNeeded) await tokenGiven.promise;
    let answer;
    try {
      answer = await fetch(path, {method, signal, cache: 'no-store', headers: bearer ? {Authorization: 'Bearer ' + bearer} : {}});
    } catch (error) {
      if (signal?.aborted) throw error;
      setAway(true);
      throw new Refused(0, 'The guard does not answer.');
    }
    if (answer.status === 401) { await askToken(true); continue; }
    setAway(false);
    const body = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Refused(answer.status, body.detail || `The guard answers ${answer.status}.`);
    return body;
  }
}

// isNeeded: the guard refuses what there is, so the question stays until it is answered.
function askToken(isNeeded) {
  if (!tokenGiven) {
    tokenGiven = {isNeeded};
    tokenGiven.promise = new Promise((resolve) => { tokenGiven.resolve = resolve; });
    byId('token').value = '';
    byId('token-dialog').showModal();
  }
  tokenGiven.isNeeded ||= isNeeded;
  byId('token-says').textContent = isNeeded && bearer ? 'The guard does not know this token.' : '';
  return tokenGiven.promise;
}
function tokenClosed() {
  if (!tokenGiven) return;
  if (tokenGiven.isNeeded) return byId('token-dialog').showModal();
  tokenGiven.resolve();
  tokenGiven = null;
}
function useToken() {
  const given = byId('token').value.trim();
  if (!/^[\x21-\x7e]+$/.test(given)) {
    byId('token-says').textContent = 'A token is visible ASCII without blanks.';
    return;
  }
  bearer = given;
  byId('token').value = '';
  byId('other-token').hidden = false;
  tokenGiven?.resolve();
  tokenGiven = null;
  byId('token-dialog').close();
}

function setAway(isAway) {
  if (isAway === (awaySince !== null)) return;
  awaySince = isAway ? Date.now() : null;
  showAway();
}
function showAway() {
  const banner = byId('link');
  banner.hidden = awaySince === null;
  banner.className = 'banner bad';
  if (awaySince === null) return;
  const text = `The guard has not answered since ${clock(awaySince)}. Trying again by itself; what you see here is from before.`;
  if (banner.textContent !== text) banner.textContent = text;
  showState('no answer', 'bad');
}
function showState(text, tone) {
  const state = byId('state');
  if (state.textContent !== text) state.textContent = text;
  state.className = 'pill ' + tone;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// The stream of events. EventSource cannot send a token, so the stream is read by hand.
async function follow() {
  for (let wait = 500;; wait = Math.min(5000, wait * 2)) {
    const stop = new AbortController();
    let watchdog = 0;
    if (tokenGiven?.isNeeded) await tokenGiven.promise;
    const alive = () => { clearTimeout(watchdog); watchdog = setTimeout(() => stop.abort(), silenceMaxMs); };
    try {
      const headers = {};
      if (bearer) headers.Authorization = 'Bearer ' + bearer;
      if (lastId) headers['Last-Event-ID'] = lastId;
      alive();
      const answer = await fetch('/v1/events', {headers, signal: stop.signal, cache: 'no-store'});
      if (answer.status === 401) { clearTimeout(watchdog); await askToken(true); wait = 250; continue; }
      if (!answer.ok) throw new Error('no stream');
      setAway(false);
      wait = 250;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = '';;) {
        const {value, done} = await reader.read();
        if (done) break;
        alive();
        const blocks = (rest + value).split('\n\n');
        rest = blocks.pop();
        take(blocks.map(parseBlock).filter(Boolean));
      }
    } catch { /* told by the next look at the status */ }
    clearTimeout(watchdog);
    await pause(wait);
  }
}
function parseBlock(block) {
  const fields = {};
  for (const line of block.split('\n')) {
    const colon = line.indexOf(': ');
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
  }
  if (!fields.data) return null;
  const event = JSON.parse(fields.data);
  if (fields.event === 'gap' && event.detail) return null;  // another run: see look()
  if (fields.event === 'gap') return {note: `${event.missed} events are missing here: the guard keeps the last 1,000.`};
  lastId = fields.id;
  return event;
}

// ---- events in words

const refused = {stale: 'stale', conflict: 'another holder has this number', missing: 'no token', implausible: 'token too high',
  unsigned: 'not signed', unavailable: 'not judged', unknown: 'outcome unknown'};
function words(event) {
  const token = event.token ? `token ${event.token}` : '';
  switch (event.kind) {
    case 'takeover': return event.isFirst ? `${token}: the first grant seen` : `${token} took over`;
    case 'revoke': return `revoked by hand${token ? `: ${token} is refused from now on` : ''}`;
    case 'quarantine': return `quarantined for ${span(event.quarantined_ms - 500)}`;
    case 'quarantine_end': return 'quarantine is over';
    default: return `${event.operation}${token ? ' with ' + token : ''}: ${refused[event.verdict] || event.verdict}` +
        (event.highest && event.highest !== event.token ? `, highest ${event.highest}` : '');
  }
}
const pills = {refusal: ['refused', 'bad'], takeover: ['take-over', ''], revoke: ['revoked', 'bad'], quarantine: ['quarantine', 'warn'],
  quarantine_end: ['open again', 'good']};
function pillOf(event) {
  const [word, tone] = event.verdict === 'unknown' ? ['unknown', 'warn'] : event.verdict === 'unavailable' ? ['unavailable', 'warn']
    : event.isFirst ? ['grant', ''] : pills[event.kind];
  return node('span', {className: 'pill ' + tone}, word);
}
// The same again, one behind the other, is one row.
const isSame = (a, b) => a.kind === 'refusal' && ['kind', 'resource', 'verdict', 'token', 'operation', 'client'].every((m) => a[m] === b[m]);
function grouped(list) {
  const groups = [];
  for (const event of list) {
    const last = groups.at(-1);
    if (last && !event.note && !last.note && isSame(last, event)) last.times += 1;
    else groups.push({...event, times: 1});
  }
  return groups;
}
function row(event, withName) {
  if (event.note) return node('li', {}, node('span', {className: 'note'}, event.note));
  const text = node('div', {}, words(event) + (event.times > 1 ? ` ×${event.times}` : ''));
  if (withName) text.append(' — ', linkTo(event.resource));
  const more = [event.client && 'from ' + event.client, event.detail && numbered(event.detail)].filter(Boolean).join('; ');
  if (more) text.append(node('br'), node('small', {}, more));
  return node('li', {}, when(event.at), pillOf(event), text);
}

function take(fresh) {
  if (fresh.length === 0) return;
  for (const event of fresh) {
    // Of what was before it nothing is known.
    event.isFirst = event.kind === 'takeover' && !events.some((known) => known.resource === event.resource && known.token);
    events.unshift(event);
  }
  events.length = Math.min(events.length, eventsMax);
  const refusals = fresh.filter((event) => event.kind === 'refusal').length;
  if (document.hidden) unseen += refusals;
  document.title = unseen ? `(${unseen}) fenceguard` : 'fenceguard';
  if (refusals) byId('news').textContent = `${refusals} more refused at ${clock(guardNow())}`;
  soon(showEvents);
}
const due = new Set();
function soon(action) {
  if (due.has(action)) return;
  due.add(action);
  setTimeout(() => { due.delete(action); action(); }, 100);
}

function showEvents() {
  if (view.kind === 'resource') return showStory();
  if (view.kind !== '' || byId('still').checked || isInUse('timeline')) return;
  const kind = byId('kind').value, part = byId('filter').value;
  const isShown = (event) => event.note ? !kind && !part
    : (!kind || event.kind.startsWith(kind) || (kind === 'takeover' && event.kind === 'revoke')) && event.resource.includes(part);
  const groups = grouped(events.filter(isShown));
  fill(byId('timeline'), ...groups.slice(0, rowsShown).map((event) => row(event, true)));
  byId('older').hidden = groups.length <= rowsShown;
  byId('timeline-end').textContent = groups.length ? '' :
    events.length ? 'Nothing of that kind.' : 'Nothing was refused or taken over since the guard was started.';
}

// ---- the overview

const stateTone = {ready: 'good', quarantined: 'warn', uninitialised: 'bad', failed: 'bad'};
function showStatus() {
  if (!guard || awaySince !== null) return;
  const closed = guard.lanes.quarantined;
  if (guard.state === 'ready' && closed) showState(`ready, ${closed} in quarantine`, 'warn');
  else showState(guard.state, stateTone[guard.state] || 'bad');
  if (guard.detail) {
    const banner = byId('link');
    banner.hidden = false;
    banner.className = 'banner ' + (stateTone[guard.state] || 'bad');
    if (banner.textContent !== guard.detail) banner.textContent = guard.detail;
  } else if (awaySince === null) byId('link').hidden = true;
  figures(byId('facts'), [['storage', guard.storage], ['token source', guard.source || 'none'], ['up', span(guard.uptime_ms)],
    ['fences', String(guard.resources)], ['highest token', guard.highest], ['requests in flight', String(guard.in_flight)],
    ['writes in lanes', String(guard.lanes.in_flight)], ['claims that wait', String(guard.lanes.waiting)],
    ['version', guard.version]]);
  byId('verdicts-title').textContent = `Verdicts of the last ${span(guard.verdicts.window_ms)}`;
  figures(byId('verdicts'), Object.entries(guard.verdicts.counts).filter(([word, count]) => count > 0 || word === 'admitted' || word === 'stale')
    .map(([word, count]) => [word, String(count), count === 0 || word === 'admitted' || word === 'duplicate' ? ''
      : word === 'unavailable' || word === 'unknown' ? 'warn' : 'bad']));
  const lanes = guard.lanes.in_quarantine.map((lane) => [linkTo(lane.resource), countdown(lane.quarantined_ms)]);
  if (guard.quarantined_ms) lanes.unshift(['every resource', countdown(guard.quarantined_ms)]);
  if (!isInUse('quarantine')) fill(byId('quarantine'), table(['resource', 'time left'], lanes));
}
const noList = 'This token source cannot list its leases.';
async function showFirstLeases() {
  if (!guard.lists_leases) return fill(byId('first-leases'), node('p', {}, noList));
  try {
    const page = await call('GET', '/v1/leases?limit=8');
    if (isInUse('first-leases')) return;
    fill(byId('first-leases'), table(['resource', 'token', 'left'], page.leases.map(leaseCells)),
      page.has_more ? node('a', {href: '#/leases'}, 'all leases') : '');
  } catch (error) { fill(byId('first-leases'), node('p', {}, error.message)); }
}
const leaseCells = (lease) => [linkTo(lease.resource), lease.token,
  lease.expires_in_ms === undefined ? 'as long as its connection' : countdown(lease.expires_in_ms)];

async function look() {
  for (;;) {
    if (!document.hidden) {
      try {
        const fresh = await call('GET', '/v1/status');
        if (guard && guard.started_at !== fresh.started_at)
          take([{note: `The guard was started anew at ${clock(fresh.started_at)}.`}]);
        guard = fresh;
        clockAhead = Date.parse(guard.now) - Date.now();
        showStatus();
        if (view.kind === '') await showFirstLeases();
        if (view.kind === 'resource') await showResource();
        if (view.kind === 'leases' && !isInUse('rows')) await showList();
      } catch { showAway(); }
    }
    await pause(statusEveryMs);
  }
}

// ---- lists, a page at a time

let listCall = null;
async function showList() {
  listCall?.abort();
  const stop = listCall = new AbortController();
  const kind = view.kind, prefix = byId('prefix').value;
  if (kind === 'leases' && guard && !guard.lists_leases) {
    byId('list-title').textContent = 'Leases';
    byId('rows').replaceChildren();
    byId('list-says').textContent = noList + ' Type a name to look at one.';
    byId('next').disabled = byId('previous').disabled = true;
    return;
  }
  const query = new URLSearchParams({prefix, after: view.after, limit: pageRows});
  byId('list-title').textContent = kind === 'fences' ? 'Fences' : 'Leases';
  try {
    const page = await call('GET', `/v1/${kind}?${query}`, stop.signal);
    const entries = page[kind];
    view.next = page.next;
    const made = kind === 'fences' ? table(['resource', 'highest token', 'state'],
        entries.map((fence) => [linkTo(fence.resource), fence.token, fence.closed ? 'closed by a revoke' : 'open']))
      : table(['resource', 'token', 'left'], entries.map(leaseCells));
    made.id = 'rows';
    byId('rows').replaceWith(made);
    byId('list-says').textContent = entries.length ? `Page ${view.before.length + 1}: ${entries.length} ${kind}` +
      (page.has_more ? ', and there are more.' : '.') : 'None begin with this.';
  } catch (error) {
    if (stop.signal.aborted) return;
    byId('list-says').textContent = error.message;
    view.next = null;
  }
  byId('next').disabled = !view.next;
  byId('previous').disabled = view.before.length === 0;
}
function turn(isOn) {
  if (isOn) { view.before.push(view.after); view.after = view.next; } else view.after = view.before.pop();
  showList();
}

// ---- one resource

async function showResource() {
  const name = view.resource;
  // What is not there is no error in a list of one.
  const first = async (of) => {
    const page = await call('GET', `/v1/${of}?${new URLSearchParams({prefix: name, limit: 1})}`);
    return page[of].find((entry) => entry.resource === name);
  };
  let fence, lease, why = '';
  try {
    fence = await first('fences');
    if (guard?.lists_leases) lease = await first('leases');
  } catch (error) { why = error.message; }
  if (view.resource !== name || view.kind !== 'resource') return;
  if (why) { byId('resource-says').textContent = why; return; }
  const lane = guard?.lanes.in_quarantine.find((one) => one.resource === name);
  figures(byId('resource-facts'), [
    ['fence', fence ? `token ${fence.token} or higher` + (fence.sequence ? `, sequence ${fence.sequence}` : '') : 'none of its own'],
    ...fence ? [['state', fence.closed ? 'closed by a revoke; a higher token opens it' : 'open', fence.closed ? 'bad' : '']] : [],
    ['lease', lease ? `token ${lease.token}` : guard?.lists_leases ? 'none' : 'not known: ' + noList],
    ...lease?.expires_in_ms === undefined ? [] : [['ends in', countdown(lease.expires_in_ms)]],
    ...lane ? [['quarantined', countdown(lane.quarantined_ms), 'warn']] : []]);
  const place = byId('revoke-place');
  if (guard?.role !== 'admin') fill(place, node('p', {}, 'Revoking takes a token with the role admin.'));
  else if (!byId('revoke')) fill(place, node('button', {type: 'button', id: 'revoke', onclick: openRevoke}, 'Revoke…'));
}
function showStory() {
  const mine = grouped(events.filter((event) => event.resource === view.resource || event.resource === '*'));
  fill(byId('words'), ...mine.slice(0, rowsShown).map((event) => row(event, false)));
  byId('save').hidden = mine.length === 0;
  byId('story-says').textContent = mine.length ? `From the last 1,000 events of the guard; ${mine.length > storyRowsMax ?
    `the last ${storyRowsMax} are drawn.` : 'all that there are of this resource.'}`
    : 'Nothing is known: no refusal, take-over, revoke or quarantine among the last 1,000 events.';
  fill(byId('story'), ...mine.length ? [drawStory(`What happened to ${numbered(view.resource)}`, mine.reverse(),
    (event) => words(event), (event) => clock(event.at))] : []);
}
function savePicture() {
  const file = new Blob([pictureFile(byId('story').querySelector('svg'), document.querySelector('style').textContent)],
    {type: 'image/svg+xml'});
  const link = node('a', {href: URL.createObjectURL(file), download: 'story.svg'});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
function openRevoke() {
  fill(byId('revoke-name'), nameOf(view.resource));
  byId('revoke-again').value = byId('revoke-says').textContent = '';
  byId('revoke-do').disabled = true;
  byId('revoke-dialog').showModal();
}
const isNamedAgain = () => [view.resource, numbered(view.resource)].includes(byId('revoke-again').value);
async function revoke() {
  if (!isNamedAgain()) return;
  byId('revoke-do').disabled = true;
  try {
    const done = await call('POST', `/v1/fences/${pathOf(view.resource)}/revoke`);
    byId('revoke-dialog').close();
    byId('resource-says').textContent = (done.token ? `Revoked: token ${done.token} is refused from now on; ` : 'Revoked: ') +
      (done.lease_ended ? 'its lease was ended.' : done.detail || 'there was no lease to end.');
    showResource();
  } catch (error) {
    byId('revoke-says').textContent = error.message;
    byId('revoke-do').disabled = false;
  }
}

// ---- what was recorded: both runs of a demonstration

function showRecording(recorded) {
  document.title = byId('recorded-title').textContent = recorded.title;
  byId('recorded-opening').textContent = recorded.opening;
  document.body.className = 'recorded';
  for (const part of document.querySelectorAll('#state, nav, #overview')) part.hidden = true;
  byId('recorded').hidden = false;
  for (const id of ['round', 'through']) {
    const run = recorded[id];
    const picture = document.importNode(new DOMParser().parseFromString(run.picture, 'image/svg+xml').documentElement, true);
    picture.style.setProperty('--rows', run.rows);
    fill(byId(id), node('h3', {}, run.heading), run.as_it_must_be ? '' : node('p', {}, 'This time it did not come out as it must.'),
      node('p', {className: `banner ${run.tone}`}, run.outcome), picture,
      node('details', {}, node('summary', {}, 'The same in words'),
        node('ol', {}, ...run.events.map((event) => node('li', {}, event.words)))));
  }
}

// ---- views

function route() {
  const [, kind = '', name = ''] = /^#\/(fences|leases|resource)(?:\/(.*))?$/s.exec(location.hash) || [];
  let resource = '';
  try { resource = decodeURIComponent(name); } catch { /* no name */ }
  view = {kind: kind === 'resource' && !resource ? '' : kind, resource, before: [], after: '', next: null};
  rowsShown = rowsAtOnce;
  byId('overview').hidden = view.kind !== '';
  byId('list').hidden = view.kind !== 'fences' && view.kind !== 'leases';
  byId('resource').hidden = view.kind !== 'resource';
  for (const link of document.querySelectorAll('nav a'))
    link.ariaCurrent = link.hash === '#/' + (view.kind === 'resource' ? 'fences' : view.kind) ? 'page' : null;
  if (!byId('list').hidden) showList();
  if (view.kind === 'resource') {
    fill(byId('resource-title'), nameOf(resource));
    for (const id of ['resource-says', 'resource-facts', 'revoke-place']) fill(byId(id));
    showResource();
  }
  showEvents();
}
function on(id, what, action) { byId(id).addEventListener(what, action); }
function onEnter(id, action) { on(id, 'keydown', (key) => { if (key.key === 'Enter') { key.preventDefault(); action(); } }); }

let typed = 0;
on('prefix', 'input', () => {
  clearTimeout(typed);
  // Meanwhile another view may have been opened.
  typed = setTimeout(() => {
    if (byId('list').hidden) return;
    Object.assign(view, {before: [], after: ''});
    showList();
  }, 200);
});
const openNamed = () => { if (byId('prefix').value) location.hash = '#/resource/' + encodeURIComponent(byId('prefix').value); };
on('open', 'click', openNamed);
onEnter('prefix', openNamed);
on('next', 'click', () => turn(true));
on('previous', 'click', () => turn(false));
for (const id of ['kind', 'filter', 'still']) on(id, 'input', () => { rowsShown = rowsAtOnce; showEvents(); });
on('older', 'click', () => { rowsShown += rowsAtOnce; showEvents(); });
on('save', 'click', savePicture);
on('token-use', 'click', useToken);
onEnter('token', useToken);
on('token-dialog', 'close', tokenClosed);
on('other-token', 'click', () => { askToken(false); });
on('revoke-again', 'input', () => { byId('revoke-do').disabled = !isNamedAgain(); });
onEnter('revoke-again', revoke);
on('revoke-do', 'click', revoke);
on('revoke-cancel', 'click', () => byId('revoke-dialog').close());
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) { unseen = 0; document.title = 'fenceguard'; }
});
setInterval(() => {
  for (const left of document.querySelectorAll('.countdown')) left.textContent = span(left.until - Date.now());
}, 1000);
if (byId('recording')) showRecording(JSON.parse(byId('recording').textContent));
else {
  addEventListener('hashchange', () => { route(); byId('main').focus(); });
  if (document.documentElement.dataset.tokens === 'yes') askToken(true);
  route();
  follow();
  look();
}
