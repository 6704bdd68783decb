'use strict';
// The page of one recording. Its data: the command's line, sums, advice, searches, calls, buckets; folders as
// [parent, name, asked, missed, wasted, opened], parents first, sums below included; names as
// [folder, name, asked, missed, unlinked, checked, opened]; stacks as [asked, missed, opened, name, frames], each
// frame by its number in `frames`, the caller last.
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const $ = (id) => document.getElementById(id);
  const number = (n) => n.toLocaleString('en-US');
  const percent = (part, whole) => `${whole ? Math.round((100 * part) / whole) : 0} %`;
  const time = (ns) =>
    ns < 1e6 ? `${(ns / 1e3).toFixed(0)} µs` : ns < 1e9 ? `${(ns / 1e6).toFixed(1)} ms` : `${(ns / 1e9).toFixed(2)} s`;
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
      else if (name.startsWith('--')) element.style.setProperty(name, value);
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };

  // A path breaks behind its slashes, not within a word.
  const breakable = (text) => text.split(/(?<=\/)/).flatMap((part) => [part, make('wbr')]);
  const isNarrow = matchMedia('(max-width: 640px)').matches;

  const { totals } = data;
  const folders = data.folders.map(([parent, name, asked, missed, wasted, opened], index) => ({
    index, parent, name, asked, missed, wasted, opened, children: [],
  }));
  folders.slice(1).forEach((folder) => folders[folder.parent].children.push(folder));
  const path = (index) =>
    index === 0 ? '' : `${path(folders[index].parent)}/${folders[index].name}`;
  const names = data.names.map(([folder, name, asked, missed, unlinked, checked, opened]) => ({
    name: `${path(folder)}/${name}`, asked, missed, unlinked, opened,
    wasted: missed + unlinked + Math.max(checked - 1, 0),
  }));

  const showHead = () => {
    document.title = `${data.line} – thruway trace`;
    $('command').textContent = data.line;
    const end = totals.status !== null ? `exit ${totals.status}`
      : totals.signal !== null ? `killed by signal ${totals.signal}` : 'end unknown';
    const processes = `${number(totals.processes)} process${totals.processes === 1 ? '' : 'es'}`;
    $('outcome').textContent =
      `${end} · ${time(totals.wall_ns)} (untraced ≈ ${time(totals.untraced_ns)}) · ${processes} · ${data.started}`;
    $('foot').textContent =
      `${number(totals.calls)} calls of strace's class %file, ${number(totals.failed)} of them failed · ` +
      `noted by ${totals.backend}, ${number(totals.stops)} stops, ${number(totals.traced)} calls noted by the tracer` +
      (totals.rings ? ` · ${totals.rings} io_uring rings: look-ups through them are in no count` : '') +
      (totals.is_cut_short ? ' · the recording ends before the command' : '') +
      (data.names_left_out ? ` · ${number(data.names_left_out)} names with the least waste are not in the table` : '') +
      (totals.without_rights.length
        ? ' · without the rights of their set-user-ID bits, because they were traced: '
          + totals.without_rights.join(', ') : '');
  };

  const showSums = () => {
    const share = (count) => percent(count, totals.lookups);
    const sum = (label, count, note, kind = '', part = null) =>
      $('sums').append(make('div', { class: `sum ${kind}`, '--share': part ?? '0%' },
        make('b', {}, count), make('span', {}, label), make('i'), make('span', {}, note)));
    sum('names asked for', number(totals.lookups), `${number(totals.names)} different`, '', '0%');
    const part = (count) => share(count).replace(' ', '');
    sum('not there', number(totals.missed), share(totals.missed), 'waste', part(totals.missed));
    sum('not a link', number(totals.unlinked), share(totals.unlinked), 'waste', part(totals.unlinked));
    sum('asked again', number(totals.again), share(totals.again), 'waste', part(totals.again));
    sum('found', number(totals.found), share(totals.found), 'use', part(totals.found));
    const each = totals.opened ? Math.round(totals.lookups / totals.opened) : 0;
    sum('files opened', number(totals.opened), `${number(each)} look-ups for each`, 'use', '0%');
    if (totals.lookups_ns !== null) {
      const run = percent(totals.lookups_ns, totals.wall_ns);
      sum('time in look-ups', time(totals.lookups_ns), `${run} of the run`, '', '0%');
    }
  };

  const showAdvice = () => {
    for (const advice of data.advice) {
      const copy = make('button', {
        type: 'button', onclick: () => navigator.clipboard?.writeText(advice.how),
      }, 'copy');
      $('advice').append(make('li', {}, make('b', {}, advice.title),
        make('span', {}, 'saves up to ', make('strong', {}, number(advice.saves))),
        make('code', {}, advice.how), copy, advice.note ? make('em', {}, ` ${advice.note}`) : ''));
    }
    if (!data.advice.length) $('advice').append(make('li', {}, 'Nothing that we know of.'));
  };

  // Squares as good as they can be had: rows along the shorter side.
  const squarify = (items, x, y, width, height, place) => {
    let rest = items.slice();
    let sum = rest.reduce((total, item) => total + item.size, 0);
    while (rest.length && width > 0 && height > 0 && sum > 0) {
      const short = Math.min(width, height);
      const scale = (width * height) / sum;
      let row = [];
      let rowSum = 0;
      let worst = Infinity;
      for (const item of rest) {
        const next = rowSum + item.size;
        const side = (next * scale) / short;
        const first = row.length ? row[0].size : item.size;
        const ratio = Math.max(...[first, item.size].map((size) => {
          const other = (size * scale) / side;
          return Math.max(side / other, other / side);
        }));
        if (row.length && ratio > worst) break;
        worst = ratio;
        row.push(item);
        rowSum = next;
      }
      const thick = (rowSum * scale) / short;
      let along = 0;
      for (const item of row) {
        const long = (item.size / rowSum) * short;
        if (width >= height) place(item, x, y + along, thick, long);
        else place(item, x + along, y, long, thick);
        along += long;
      }
      if (width >= height) { x += thick; width -= thick; } else { y += thick; height -= thick; }
      rest = rest.slice(row.length);
      sum -= rowSum;
    }
  };

  let current = 0;
  const measured = (folder) => folder[$('measure').value];
  // A folder that holds hardly anything but one folder is shown as one with it.
  const collapsed = (folder) => {
    let label = folder.name;
    let last = folder;
    for (;;) {
      const only = last.children.find((child) => measured(child) >= 0.9 * measured(last));
      if (!only) return { label, last };
      last = only;
      label += `/${last.name}`;
    }
  };

  const drawFolder = (folder, x, y, width, height, depth) => {
    const inside = folder.children.filter((child) => measured(child) > 0);
    const items = inside.map((child) => ({ size: measured(child), folder: child }));
    const own = measured(folder) - items.reduce((total, item) => total + item.size, 0);
    if (own > 0 && items.length) items.push({ size: own, folder: null });
    items.sort((a, b) => b.size - a.size);
    squarify(items, x, y, width, height, (item, left, top, wide, high) => {
      if (!item.folder || wide < 3 || high < 3) return;
      const { label, last } = collapsed(item.folder);
      const heat = last.asked ? last.wasted / last.asked : 0;
      const text = wide > 40 && high > 16;
      const cell = make('div', {
        class: ['cell', heat > 0.6 && 'hot', depth % 2 && 'odd', text && 'told'].filter(Boolean).join(' '),
        role: 'treeitem', tabindex: depth ? -1 : 0,
        'data-folder': last.index,
        title: `${path(last.index)}\n${number(last.wasted)} wasted of ${number(last.asked)} look-ups\n` +
          `${number(last.missed)} not there · ${number(last.opened)} files opened`,
        style: `left:${left}px;top:${top}px;width:${wide}px;height:${high}px`,
      });
      if (text) cell.append(label, make('span', { class: 'n' }, number(measured(last))));
      cell.style.setProperty('--heat', `${Math.round(heat * 100)}%`);
      $('map').append(cell);
      if (depth < 5 && wide > 60 && high > 50) {
        drawFolder(last, left + 3, top + 19, wide - 6, high - 22, depth + 1);
      }
    });
  };

  const drawMap = () => {
    $('map').replaceChildren();
    drawFolder(folders[current], 0, 0, $('map').clientWidth, $('map').clientHeight, 0);
    if (!$('map').children.length) {
      $('map').append(make('p', { class: 'hint', style: 'padding: 0 14px' }, 'No folder below this one.'));
    }
    const crumbs = [];
    for (let index = current; index !== 0; index = folders[index].parent) crumbs.unshift(index);
    const crumb = (index, label) => make('button', { type: 'button', onclick: () => enter(index) }, label);
    $('crumbs').replaceChildren(crumb(0, '/'), ...crumbs.flatMap((index, place) =>
      (place ? ['/'] : []).concat(crumb(index, folders[index].name))));
  };

  const enter = (index) => {
    current = index;
    drawMap();
    $('filter').value = index === 0 ? '' : `${path(index)}/`;
    showNames();
  };

  const showTime = () => {
    const { buckets, bucket_ns: length } = data;
    const most = Math.max(1, ...buckets.map((bucket) => bucket.asked));
    const svg = $('time');
    svg.setAttribute('viewBox', `0 0 ${Math.max(buckets.length, 1)} 100`);
    const bar = (index, value, kind) => {
      const rect = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
      const height = (96 * value) / most;
      const box = { x: index, y: 100 - height, width: 0.92, height, class: kind };
      for (const [name, value_] of Object.entries(box)) rect.setAttribute(name, value_);
      svg.append(rect);
    };
    buckets.forEach((bucket, index) => {
      bar(index, bucket.asked, 'asked');
      bar(index, bucket.missed, 'missed');
    });
    svg.addEventListener('pointermove', (event) => {
      const box = svg.getBoundingClientRect();
      const index = Math.floor(((event.clientX - box.left) / box.width) * buckets.length);
      const bucket = buckets[index];
      $('moment').textContent = moment
        ? ` · ${time(index * length)} to ${time((index + 1) * length)}: ${number(bucket.asked)} look-ups, `
          + `${number(bucket.missed)} not there`
        : '';
    });
  };

  // The tree of callers, the outermost first. The counts of a node are the sums of all stacks that contain it.
  const callers = () => {
    const node = (frame, parent) => ({ frame, parent, asked: 0, missed: 0, children: new Map() });
    const root = node('all stacks', null);
    for (const [asked, missed, , , frames] of data.stacks) {
      let at = root;
      for (const frame of [null, ...frames.slice().reverse()]) {
        if (frame !== null) {
          if (!at.children.has(frame)) at.children.set(frame, node(data.frames[frame], at));
          at = at.children.get(frame);
        }
        at.asked += asked;
        at.missed += missed;
      }
    }
    return root;
  };

  const FRAME_HEIGHT = 20;
  const drawFlame = (chosen) => {
    const flame = $('flame');
    flame.replaceChildren();
    let depths = 0;
    const cell = (node, depth, left, width) => {
      depths = Math.max(depths, depth + 1);
      const title = `${node.frame}\n${number(node.asked)} look-ups, ${number(node.missed)} not there`;
      const box = make('div', {
        class: `cell told${node.missed > 0.6 * node.asked ? ' hot' : ''}`, role: 'treeitem', tabindex: 0, title,
        style: `left:${left}%;width:${width}%;top:${depth * FRAME_HEIGHT}px;height:${FRAME_HEIGHT}px`,
        onclick: () => drawFlame(node),
        onkeydown: (event) => { if (event.key === 'Enter') drawFlame(node); },
      }, node.frame, make('span', { class: 'n' }, number(node.asked)));
      box.style.setProperty('--heat', percent(node.missed, node.asked).replace(' ', ''));
      flame.append(box);
    };
    const outer = [];
    for (let node = chosen.parent; node; node = node.parent) outer.unshift(node);
    outer.forEach((node, depth) => cell(node, depth, 0, 100));
    const narrowest = 150 / Math.max(flame.clientWidth, 1);
    const draw = (node, depth, left, width) => {
      cell(node, depth, left, width);
      let at = left;
      for (const child of [...node.children.values()].sort((a, b) => b.asked - a.asked)) {
        const wide = (width * child.asked) / node.asked;
        if (wide >= narrowest) draw(child, depth + 1, at, wide);
        at += wide;
      }
    };
    draw(chosen, outer.length, 0, 100);
    flame.style.setProperty('--height', `${depths * FRAME_HEIGHT}px`);
  };

  const showStacks = () => {
    if (!data.stacks.length) return;
    $('asks').hidden = false;
    drawFlame(callers());
    const most = data.stacks[0][0];
    const shown = data.stacks.slice(0, isNarrow ? 20 : 100);
    for (const [asked, missed, opened, name, frames] of shown) {
      const [first, ...outer] = frames.map((frame) => data.frames[frame]);
      $('stacks').append(make('details', {},
        make('summary', { class: 'folder' }, make('code', { title: first }, make('bdi', {}, ...breakable(first))),
          make('i', { '--share': `${(100 * asked) / most}%` }), make('span', {}, number(asked)),
          make('span', missed ? { class: 'unused' } : {}, missed ? number(missed) : '–')),
        ...outer.map((frame) => make('code', { class: 'frame' }, ...breakable(frame))),
        make('p', { class: 'hint' }, 'such as ', ...breakable(name), ` · ${number(opened)} files opened`)));
    }
    const left = data.stacks.length - shown.length + data.stacks_left_out;
    if (left) $('stacks').append(make('p', { class: 'hint' }, `and ${number(left)} more`));
    $('unread').textContent = data.unread_interpreters.map((interpreter) =>
      `Stacks show the code of ${interpreter}, and not of its script.`).join(' ');
  };

  const showSearches = () => {
    for (const search of data.searches) {
      const most = Math.max(1, ...search.folders.map((folder) => folder.missed));
      const unused = search.unused
        ? ` · ${number(search.unused)} gave nothing at all: ${number(search.unused_missed)} misses` : '';
      const shown = search.folders.slice(0, isNarrow ? 30 : 400);
      const left = search.folders.length - shown.length;
      const rows = shown.map((folder) =>
        make('div', { class: 'folder' },
          make('code', { title: folder.path }, make('bdi', {}, ...breakable(folder.path))),
          make('i', { '--share': `${(100 * folder.missed) / most}%` }), make('span', {}, number(folder.missed)),
          make('span', folder.is_used ? {} : { class: 'unused' }, folder.is_used ? number(folder.opened) : 'nothing')));
      const details = make('details', {},
        make('summary', {}, `${number(search.folders.length)} ${search.title}: ${number(search.missed)} misses`,
          make('em', {}, unused)), ...rows, left ? make('p', { class: 'hint' }, `and ${number(left)} more`) : '');
      if (!$('searches').children.length) details.open = search.folders.length < 30;
      $('searches').append(details);
    }
    if (!data.searches.length) $('searches').append('None was recognised.');
  };

  let sort = { key: 'wasted', down: true };
  let shown = isNarrow ? 30 : 200;
  const showNames = () => {
    const part = $('filter').value.toLowerCase();
    const only = $('waste').checked;
    const found = names.filter((row) => (!only || row.wasted > 0) && row.name.toLowerCase().includes(part));
    const { key, down } = sort;
    found.sort((a, b) => (a[key] < b[key] ? 1 : a[key] > b[key] ? -1 : 0) * (down ? 1 : -1));
    const cells = (row) => make('tr', {}, make('td', {}, ...breakable(row.name)), make('td', {}, number(row.asked)),
      make('td', {}, number(row.missed)), make('td', {}, number(row.unlinked)),
      make('td', {}, number(row.opened)), make('td', { class: row.wasted ? 'w' : '' }, number(row.wasted)));
    $('names').tBodies[0].replaceChildren(...found.slice(0, shown).map(cells));
    const sum = found.reduce((total, row) => total + row.asked, 0);
    $('count').textContent = `${number(found.length)} names, ${number(sum)} look-ups` +
      (data.names_left_out ? `; ${number(data.names_left_out)} names with the least waste are left out` : '');
    $('more').hidden = found.length <= shown;
    for (const head of $('names').tHead.querySelectorAll('th')) {
      if (head.dataset.key === key) head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    }
  };

  const showCalls = () => {
    for (const call of data.calls) {
      const aside = call.is_file_class ? '' : ' (not in %file)';
      $('calls').tBodies[0].append(make('tr', {}, make('td', {}, call.call + aside),
        make('td', {}, number(call.calls)), make('td', { class: call.failed ? 'w' : '' }, number(call.failed)),
        make('td', {}, time(call.took_ns))));
    }
  };

  $('map').addEventListener('click', (event) => {
    const cell = event.target.closest('.cell');
    if (cell) enter(Number(cell.dataset.folder));
  });
  $('map').addEventListener('keydown', (event) => {
    if (event.key === 'Enter') event.target.click();
  });
  $('measure').addEventListener('change', drawMap);
  $('filter').addEventListener('input', () => { shown = isNarrow ? 30 : 200; showNames(); });
  $('waste').addEventListener('change', showNames);
  $('more').addEventListener('click', () => { shown += isNarrow ? 100 : 1000; showNames(); });
  $('names').tHead.addEventListener('click', (event) => {
    const { key } = event.target.dataset;
    if (!key) return;
    sort = { key, down: sort.key === key ? !sort.down : key !== 'name' };
    showNames();
  });
  addEventListener('resize', drawMap);

  showHead();
  showSums();
  showAdvice();
  showTime();
  showStacks();
  showSearches();
  showCalls();
  drawMap();
  showNames();
})();
