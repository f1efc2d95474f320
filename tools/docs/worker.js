// Browsers refuse a Worker to a page that was opened from a folder. There the search runs in a frame.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data: structuredClone(data) });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const script = inner.document.createElement("script");
      this.ready = new Promise((done) => (script.onload = done));
      script.src = new URL(url, location.href).href;
      inner.document.body.append(script);
      this.postMessage = (sent) => {
        const data = structuredClone(sent); // as a real Worker would
        this.ready.then(() => inner.dispatchEvent(new inner.MessageEvent("message", { data })));
      };
      this.terminate = () => frame.remove();
    }
  };
