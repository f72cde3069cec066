// One matrix as a heat map on a canvas, with numbers on hover, focus, and where they fit.
import { byId, make } from "./app.js";
import { diverging, inkOn } from "./colours.js";
import { number } from "./text.js";

const readout = byId("cell-readout");
const dark = () => document.documentElement.dataset.dark === "yes";

/** Size of a cell in px: small matrices get large cells, so that all maps have about the same width. */
function cellSize(rows, columns) {
  const [width, largest] = window.innerWidth < 480 ? [88, 30] : [112, 34];
  return Math.max(3, Math.min(largest, Math.floor(width / Math.max(rows, columns, 1))));
}

export class Heatmap {
  constructor(matrix, label) {
    this.matrix = matrix;
    this.label = label;
    this.values = null;
    this.scale = 1;
    this.at = null; // the focused cell
    this.rows = Math.max(matrix.rows?.length ?? 1, 1);
    this.columns = Math.max(matrix.columns?.length ?? 1, 1);
    this.canvas = make("canvas", { tabindex: 0, role: "img", "aria-label": `${label}: no weights yet`, "data-matrix": matrix.name });
    this.resize();
    this.canvas.addEventListener("pointermove", (event) => this.readOut(this.cellOf(event)));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => this.readOut(this.at ?? [0, 0], true));
    this.canvas.addEventListener("blur", () => {
      this.at = null;
      this.draw();
    });
  }

  resize() {
    this.size = cellSize(this.rows, this.columns);
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.ratio = ratio;
    this.canvas.width = this.columns * this.size * ratio;
    this.canvas.height = this.rows * this.size * ratio;
    this.canvas.style.width = `${this.columns * this.size}px`;
    this.canvas.style.height = `${this.rows * this.size}px`;
  }

  set(values, scale) {
    if (values && (values.length !== this.rows || values[0].length !== this.columns)) {
      this.rows = values.length;
      this.columns = values[0].length;
      this.resize();
    }
    this.values = values;
    this.scale = scale;
    this.canvas.setAttribute("aria-label", this.summary());
    this.draw();
    if (document.activeElement === this.canvas && this.at) this.readOut(this.at);
  }

  summary() {
    if (!this.values) return `${this.label}: no weights yet`;
    const flat = this.values.flat().filter(Number.isFinite);
    const size = `${this.label}: ${this.rows} by ${this.columns}`;
    if (!flat.length) return `${size}, no finite numbers.`;
    const range = `from ${number(Math.min(...flat))} to ${number(Math.max(...flat))}`;
    return `${size}, ${range}. Arrow keys read single numbers.`;
  }

  draw() {
    const pen = this.canvas.getContext("2d");
    const { size } = this;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    const gap = size > 8 ? 1 : 0;
    pen.clearRect(0, 0, this.columns * size, this.rows * size);
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.font = `${size >= 34 ? 11 : 10}px system-ui, sans-serif`;
    for (let r = 0; r < this.rows; r++) {
      for (let c = 0; c < this.columns; c++) {
        const value = this.values?.[r]?.[c] ?? NaN;
        const colour = diverging(value, this.scale, dark());
        pen.fillStyle = `rgb(${colour.join(",")})`;
        pen.fillRect(c * size, r * size, size - gap, size - gap);
        if (size >= 26 && this.values && Number.isFinite(value)) {
          pen.fillStyle = inkOn(colour);
          pen.fillText(short(value), (c + 0.5) * size - gap / 2, (r + 0.5) * size);
        }
      }
    }
    if (this.at) {
      pen.strokeStyle = dark() ? "#fff" : "#000";
      pen.lineWidth = 2;
      pen.strokeRect(this.at[1] * size + 1, this.at[0] * size + 1, size - gap - 2, size - gap - 2);
    }
  }

  cellOf(event) {
    const frame = this.canvas.getBoundingClientRect();
    const row = Math.floor(((event.clientY - frame.top) / frame.height) * this.rows);
    const column = Math.floor(((event.clientX - frame.left) / frame.width) * this.columns);
    return [Math.min(Math.max(row, 0), this.rows - 1), Math.min(Math.max(column, 0), this.columns - 1)];
  }

  readOut([row, column], focused = false) {
    if (focused) {
      this.at = [row, column];
      this.draw();
    }
    const value = this.values?.[row]?.[column] ?? null;
    const from = this.matrix.rows?.[row] ?? `row ${row + 1}`;
    const to = this.matrix.columns?.[column] ?? `column ${column + 1}`;
    readout.setAttribute("aria-live", focused ? "polite" : "off"); // a mouse or a playing clock would say too much
    readout.textContent = `${this.label}, ${from}, ${to}: ${number(value, 4)}`;
  }

  key(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    const [row, column] = this.at ?? [0, 0];
    const clip = (at, count) => Math.min(Math.max(at, 0), count - 1);
    this.readOut([clip(row + move[0], this.rows), clip(column + move[1], this.columns)], true);
  }
}

/** A number in at most four signs, for the inside of a cell. */
function short(value) {
  const size = Math.abs(value);
  if (size < 0.005) return "0";
  if (size >= 100) return value.toFixed(0);
  return (size >= 10 ? value.toFixed(0) : size >= 1 ? value.toFixed(1) : value.toFixed(2).replace("0.", ".")).replace("-", "−");
}
