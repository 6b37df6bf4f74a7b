// Draws one frame of an animation (`guss.runs.animation`) on canvases: system, plans, archive, episode.
// page.py defines COLOURS, the colours of the figures.

const INK = "#4a4a4a"; // of axes
const EDGE = { left: 46, right: 18 }; // margins of the axes
const VIRIDIS = ["#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"]
  .map((colour) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16)));

function viridis(share) {
  const at = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1), i = Math.min(Math.floor(at), VIRIDIS.length - 2);
  const mixed = VIRIDIS[i].map((part, k) => Math.round(part + (at - i) * (VIRIDIS[i + 1][k] - part)));
  return `rgb(${mixed.join(",")})`;
}

/** Clear a canvas and scale it to device pixels; returns its drawing context and its size in CSS pixels. */
function wiped(canvas) {
  const dense = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  const size = [Math.round(width * dense), Math.round(height * dense)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  const pen = canvas.getContext("2d");
  pen.setTransform(dense, 0, 0, dense, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px system-ui, sans-serif";
  pen.lineJoin = pen.lineCap = "round";
  return { pen, width, height };
}

/** Axes with ticks and labels; `inside` draws their contents with their scales. */
function framed({ pen, width, height }, { x, y, names, equal = false, below = 34 }, inside) {
  const area = { left: EDGE.left, right: width - EDGE.right, top: 8, bottom: height - below };
  if (equal) {
    const each = Math.min((area.right - area.left) / (x[1] - x[0]), (area.bottom - area.top) / (y[1] - y[0]));
    area.left += (area.right - area.left - each * (x[1] - x[0])) / 2;
    area.right = area.left + each * (x[1] - x[0]);
    area.top = area.bottom - each * (y[1] - y[0]);
  }
  const scales = { x: scaleOf(x, [area.left, area.right]), y: scaleOf(y, [area.bottom, area.top]) };
  pen.save();
  pen.beginPath();
  pen.rect(area.left, area.top, area.right - area.left, area.bottom - area.top);
  pen.clip();
  inside(scales, area);
  pen.restore();
  pen.strokeStyle = pen.fillStyle = INK;
  pen.lineWidth = 1;
  pen.strokeRect(area.left, area.top, area.right - area.left, area.bottom - area.top);
  pen.textAlign = "center";
  const xTicks = ticksOf(...x, (area.right - area.left) / 60), yTicks = ticksOf(...y, (area.bottom - area.top) / 40);
  tickLabels(xTicks).forEach((label, i) => pen.fillText(label, scales.x(xTicks[i]), area.bottom + 14));
  pen.fillText(names[0], (area.left + area.right) / 2, area.bottom + 28);
  pen.textAlign = "right";
  tickLabels(yTicks).forEach((label, i) => pen.fillText(label, area.left - 4, scales.y(yTicks[i]) + 4));
  pen.save();
  pen.translate(area.left - 35, (area.top + area.bottom) / 2);
  pen.rotate(-Math.PI / 2);
  pen.textAlign = "center";
  pen.fillText(names[1], 0, 0);
  pen.restore();
}

/** A line through points [x, y]; a null point, or two neighbours for which `broken` is true, interrupt it. */
function stroke(pen, points, colour, width, broken = () => false) {
  pen.beginPath();
  points.forEach((point, i) => {
    const before = points[i - 1];
    if (point) before && !broken(before, point) ? pen.lineTo(...point) : pen.moveTo(...point);
  });
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.stroke();
}

function dot(pen, [x, y], radius, colour) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fillStyle = colour;
  pen.fill();
}

// --------------------------------------------------------------------------------------------------- the system

/** Convert an angle measured counter-clockwise from upright to a canvas angle. */
const turned = (angle) => -(Math.PI / 2 + angle);

const SHAPES = {
  disc(pen, at, size, [x, y, radius, colour]) {
    dot(pen, at(x, y), radius * size, colour);
  },
  line(pen, at, size, [x0, y0, x1, y1, width, colour]) {
    stroke(pen, [at(x0, y0), at(x1, y1)], colour, width * size);
  },
  rect(pen, at, size, [x0, x1, y0, y1, colour]) {
    pen.fillStyle = colour;
    pen.fillRect(...at(x0, y1), (x1 - x0) * size, (y1 - y0) * size);
  },
  sector(pen, at, size, [radius, start, stop, colour]) {
    SHAPES.ring(pen, at, size, [0, radius, start, stop, colour]);
  },
  ring(pen, at, size, [inner, outer, start, stop, colour]) {
    pen.beginPath();
    pen.arc(...at(0, 0), outer * size, turned(start), turned(stop), true);
    pen.arc(...at(0, 0), inner * size, turned(stop), turned(start), false);
    pen.fillStyle = colour;
    pen.fill();
  },
};

function drawSystem(canvas, animation, frame) {
  const { pen, width, height } = wiped(canvas);
  const [low, high] = animation.world, side = Math.min(width, height), size = side / (high - low);
  const at = (x, y) => [width / 2 + (x - (low + high) / 2) * size, height / 2 - (y - (low + high) / 2) * size];
  pen.beginPath();
  pen.rect((width - side) / 2, (height - side) / 2, side, side);
  pen.clip();
  for (const [kind, ...numbers] of frame.shapes) {
    const colour = colourOf(numbers.pop());
    SHAPES[kind](pen, at, size, [...numbers, colour]);
  }
}

// ---------------------------------------------------------------------------------------------------- the plans

function fan(pen, frame, lineOf) {
  pen.globalAlpha = 0.6;
  for (const path of frame.unsafe) lineOf(path, COLOURS.unsafe, 0.9);
  for (const path of frame.safe) lineOf(path, COLOURS.safe, 0.9);
  pen.globalAlpha = 1;
}

function drawPlans(canvas, animation, frame) {
  (animation.axes.kind === "place" ? drawPlaces : drawTimes)(canvas, animation, frame);
}

/** Whether a line is interrupted between two points, because its value (such as an angle) wraps around. */
const wrapping = (axes, y) => (a, b) => axes.wraps !== null && Math.abs(a[1] - b[1]) > Math.abs(y(axes.wraps) - y(0));

/** Plot one value of each plan against the steps from now. */
function drawTimes(canvas, { axes, path }, frame) {
  const [limits] = axes.limits;
  framed(wiped(canvas), { x: [-axes.past, axes.horizon], y: limits, names: ["steps from now", axes.labels[0]] }, ({ x, y }, area) => {
    const pen = canvas.getContext("2d"), broken = wrapping(axes, y);
    for (const [low, high] of axes.unsafe) band(pen, area, y, low, high);
    const at = (i) => x(axes.points?.[i] ?? i); // long plans store only some of their steps
    const lineOf = (line, colour, width) => stroke(pen, line.map((value, i) => [at(i), y(value)]), colour, width, broken);
    const first = Math.max(frame.step - axes.past, 0);
    const past = path.slice(first, frame.step + 1).map((value, i) => value !== null && [x(first + i - frame.step), y(value)]);
    fan(pen, frame, lineOf);
    stroke(pen, past, COLOURS.past, 1.8, broken);
    if (frame.chosen.length) {
      lineOf(frame.chosen, COLOURS.chosen, 2.6);
      dot(pen, [at(frame.chosen.length - 1), y(frame.chosen[frame.chosen.length - 1])], 3.5, COLOURS.chosen);
    }
    dot(pen, [x(0), y(frame.now)], 4, COLOURS.past);
  });
}

function band(pen, area, y, low, high) {
  pen.fillStyle = COLOURS.zone;
  pen.fillRect(area.left, y(high), area.right - area.left, y(low) - y(high));
}

/** Plot plans as paths in the plane. */
function drawPlaces(canvas, animation, frame) {
  const [xLimits, yLimits] = animation.axes.limits;
  framed(wiped(canvas), { x: xLimits, y: yLimits, names: animation.axes.labels, equal: true }, ({ x, y }) => {
    const pen = canvas.getContext("2d");
    for (const [x0, x1, y0, y1] of animation.axes.unsafe) {
      pen.fillStyle = COLOURS.zone;
      pen.fillRect(x(x0), y(y1), x(x1) - x(x0), y(y0) - y(y1));
    }
    const lineOf = (path, colour, width) => stroke(pen, path.map((place) => place && [x(place[0]), y(place[1])]), colour, width);
    fan(pen, frame, lineOf);
    lineOf((animation.path).slice(0, frame.step + 1), COLOURS.past, 1.8);
    if (frame.chosen.length) {
      lineOf(frame.chosen, COLOURS.chosen, 2.6);
      const last = frame.chosen[frame.chosen.length - 1];
      dot(pen, [x(last[0]), y(last[1])], 3.5, COLOURS.chosen);
    }
    dot(pen, [x(frame.now[0]), y(frame.now[1])], 4, COLOURS.past);
  });
}

// ------------------------------------------------------------------------------------- the archive, the episode

function drawArchive(canvas, animation, frame) {
  const { extent, shape, labels } = animation.behaviour, [x0, x1, y0, y1] = extent;
  framed(wiped(canvas), { x: [x0, x1], y: [y0, y1], names: [labels[0], labels[1] ?? ""] }, ({ x, y }) => {
    const pen = canvas.getContext("2d");
    const cell = (i, j, colour) => {
      const [left, right] = [i, i + 1].map((k) => x(x0 + (k * (x1 - x0)) / shape[0]));
      const [bottom, top] = [j, j + 1].map((k) => y(y0 + (k * (y1 - y0)) / shape[1]));
      pen.fillStyle = colour;
      pen.fillRect(left, top, Math.max(right - left, 2), Math.max(bottom - top, 2));
    };
    for (const [i, j] of frame.risky) cell(i, j, COLOURS.unsafe);
    for (const [i, j, value] of frame.cells) cell(i, j, viridis(value));
    if (!frame.ring) return;
    for (const [colour, width] of [["#ffffff", 4.5], [COLOURS.chosen, 2]]) {
      pen.beginPath();
      pen.arc(x(frame.ring[0]), y(frame.ring[1]), 8, 0, 2 * Math.PI);
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.stroke();
    }
  });
}

/** The episode as a curve: dark up to now, then grey; unsafe steps as red dots. */
function drawCourse(canvas, { axes, course }, frame) {
  const { values, unsafe, label, limits } = course, timed = axes.kind === "time";
  framed(wiped(canvas), { x: [0, values.length], y: limits, names: ["step of the episode, from 0", label] }, ({ x, y }, area) => {
    const pen = canvas.getContext("2d"), broken = wrapping(axes, y);
    if (timed) for (const [low, high] of axes.unsafe) band(pen, area, y, low, high);
    const points = values.map((value, i) => [x(i), y(value)]);
    stroke(pen, points, COLOURS.later, 1, broken);
    stroke(pen, points.slice(0, frame.step + 1), COLOURS.past, 1.5, broken);
    for (const step of unsafe) if (step <= frame.step) dot(pen, points[step], 3, COLOURS.dot);
    stroke(pen, [[x(frame.step), area.top], [x(frame.step), area.bottom]], COLOURS.chosen, 1.2);
  });
}
