// The story of one resource, drawn as the demonstrations draw theirs: a line for each token, the guard, the data, and a
// row for each event. Names and sentences get into the picture as text only.
'use strict';
const svgNamespace = 'http://www.w3.org/2000/svg';
const storyRowsMax = 40, storyTokensMax = 5;

function svgNode(kind, attributes, text) {
  const node = document.createElementNS(svgNamespace, kind);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// Numbers of nine digits and more by their last four.
const shortNumber = (number) => number.length > 8 ? '..' + number.slice(-4) : number;

// Which line an event belongs to.
const lineOf = (event) => event.token && event.kind !== 'revoke' ? event.token : '';

// events: of one resource, the oldest first. describe: an event in words. clock: its time as text.
function drawStory(title, events, describe, clock) {
  const shown = events.slice(-storyRowsMax);
  const tokens = [...new Set(shown.map(lineOf).filter(Boolean))].sort((a, b) => BigInt(a) < BigInt(b) ? -1 : 1)
    .slice(-storyTokensMax);
  const lines = shown.some((event) => event.kind === 'refusal' && !tokens.includes(lineOf(event))) ? ['', ...tokens] : tokens;
  const width = 760, guard = 600, data = 710, top = 34, row = 46;
  const height = top + 20 + row * shown.length + 16;
  const xOf = (line) => 130 + (guard - 190) * Math.max(0, lines.indexOf(line)) / Math.max(1, lines.length - 1);
  const picture = svgNode('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'font-size': 13});
  picture.append(svgNode('title', {}, title), svgNode('desc', {}, shown.map((e) => `${clock(e)} ${describe(e)}`).join('. ')));
  const draw = (kind, attributes, text) => picture.append(svgNode(kind, attributes, text));
  draw('rect', {class: 'sheet', width, height});
  for (const line of lines) {
    draw('text', {class: 'head', x: xOf(line), y: 20, 'text-anchor': 'middle'}, line ? 'token ' + shortNumber(line) : 'other');
    draw('line', {class: 'life', x1: xOf(line), x2: xOf(line), y1: top - 6, y2: height - 8});
  }
  draw('text', {class: 'head', x: data, y: 20, 'text-anchor': 'middle'}, 'data');
  draw('line', {class: 'life', x1: data, x2: data, y1: top - 6, y2: height - 8});
  draw('text', {class: 'guard-name', x: guard, y: 20, 'text-anchor': 'middle'}, 'guard');
  draw('line', {class: 'guard', x1: guard, x2: guard, y1: top - 6, y2: height - 8});
  const label = (tone, x, y, text) => {
    const isLate = x > guard / 2;
    draw('text', {class: `halo ${tone}`, x: isLate ? guard - 14 : x + 8, y, 'text-anchor': isLate ? 'end' : 'start'}, text);
  };
  let quarantinedSince = null;
  shown.forEach((event, index) => {
    const y = top + 30 + row * index;
    draw('text', {class: 'time', x: 6, y: y + 4}, clock(event));
    const x = xOf(lineOf(event));
    const words = describe(event) + (event.times > 1 ? ` ×${event.times}` : '');
    if (event.kind === 'takeover') {
      draw('line', {class: 'arrow token', x1: x, x2: data - 8, y1: y, y2: y});
      draw('path', {class: 'tip token', d: `M${data - 9} ${y - 5}l9 5l-9 5z`});
      label('token', x, y - 6, words);
      draw('text', {class: 'halo guard-name', x: guard - 10, y: y + 16, 'text-anchor': 'end'},
           shortNumber(event.token) + ' or higher from here');
    } else if (event.verdict === 'unknown') {
      // It was let through, and its end was not seen.
      draw('line', {class: 'arrow pause answer', x1: x, x2: data - 14, y1: y, y2: y});
      draw('text', {class: 'halo pause', x: data - 8, y: y + 5, 'text-anchor': 'middle'}, '?');
      label('pause', x, y - 6, words);
    } else if (event.kind === 'refusal') {
      draw('line', {class: 'arrow bad', x1: x, x2: guard - 10, y1: y, y2: y});
      draw('path', {class: 'cross', d: `M${guard - 15} ${y - 6}l11 12m0 -12l-11 12`});
      label('bad', x, y - 6, words);
    } else {
      if (event.kind === 'quarantine') quarantinedSince ??= y;
      if (event.kind === 'quarantine_end' && quarantinedSince !== null) {
        draw('line', {class: 'bar', x1: guard, x2: guard, y1: quarantinedSince, y2: y});
        quarantinedSince = null;
      }
      const tone = event.kind === 'revoke' ? 'bad' : event.kind === 'quarantine' ? 'pause' : 'guard-name';
      draw('text', {class: `halo ${tone}`, x: guard - 14, y: y + 4, 'text-anchor': 'end'}, words);
    }
  });
  if (quarantinedSince !== null)
    draw('line', {class: 'bar', x1: guard, x2: guard, y1: quarantinedSince, y2: height - 8});
  return picture;
}

// The picture as a file of its own: its part of the style goes with it, in the colours of the moment.
function pictureFile(picture, styleText) {
  const colours = getComputedStyle(document.documentElement);
  const style = styleText.split('/* picture */')[1].split('/* end of the picture */')[0]
    .replace(/var\((--[a-z]+)\)/g, (_, name) => colours.getPropertyValue(name).trim());
  const text = new XMLSerializer().serializeToString(picture);
  return text.replace('>', `><style>${style}</style>`);
}
