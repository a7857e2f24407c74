// SPDX-License-Identifier: Apache-2.0
// Web workers for pages that are opened from a disk, where browsers start none: an invisible frame runs the script of the search
// instead. The theme asks for such a script by this file's name.
(function () {
  "use strict";
  if (location.protocol !== "file:") return;

  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.onerror = null;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.frame = frame.contentWindow;
      addEventListener("message", (event) => {
        if (event.source !== this.frame) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      });
      const head = "postMessage = parent.postMessage.bind(parent);";
      const page = this.frame.document;
      page.open();
      page.write("<!doctype html><html><body><script>" + head + "<\/script><script src='" + url + "'><\/script></body></html>");
      page.close();
      this.ready = new Promise((done) => frame.addEventListener("load", done, { once: true }));
    }
    postMessage(data) {
      this.ready.then(() => this.frame.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.frameElement.remove();
    }
  }
  window.Worker = window.IFrameWorker = FrameWorker;
})();
