// Search runs in a worker, and browsers refuse workers to pages that are opened from disk. There, and
// only there, a hidden frame takes the worker's place: it loads the worker's script, and messages go
// to it and back as they would to a worker.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.appendChild(frame);
    this.frame = frame;
    this.inside = frame.contentWindow;
    // What the script calls to answer.
    this.inside.postMessage = (data) => this.deliver(data);
    this.ready = new Promise((loaded, failed) => {
      const script = this.inside.document.createElement("script");
      script.src = new URL(url, document.baseURI).href;
      script.onload = loaded;
      script.onerror = () => failed(new Error(`${url} could not be loaded`));
      this.inside.document.body.appendChild(script);
    });
    this.ready.catch((error) => this.dispatchEvent(new ErrorEvent("error", { error })));
  }

  deliver(data) {
    const event = new MessageEvent("message", { data: structuredClone(data) });
    this.dispatchEvent(event);
    this.onmessage?.(event);
  }

  postMessage(data) {
    const event = new MessageEvent("message", { data: structuredClone(data) });
    this.ready.then(() => this.inside.dispatchEvent(event), () => {});
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
