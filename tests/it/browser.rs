//! Chromium, for tests of pages.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The time after which a test fails, and never a measure.
const PATIENCE: Duration = Duration::from_secs(60);

/// A headless browser, driven over pipes: messages of JSON, each with a NUL behind it.
pub(crate) struct Browser {
    process: Child,
    commands: File,
    messages: BufReader<File>,
    session: Value,
    sent: u64,
    /// The URLs that the page has requested.
    pub(crate) requested: Vec<String>,
}

impl Browser {
    /// Starts a browser with its files in `folder`, on an empty page.
    pub(crate) fn start(folder: &Path) -> Self {
        let [commands, messages] = ["commands", "messages"].map(|name| folder.join(name));
        let made = Command::new("mkfifo").args([&commands, &messages]).status();
        assert!(made.expect("mkfifo starts").success());
        let process = Command::new("sh")
            .args([
                "-c",
                "exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage \
                          --ignore-certificate-errors \
                          --no-first-run --window-size=1200,900 --user-data-dir=\"$1/profile\" \
                          --remote-debugging-pipe about:blank 3<\"$2\" 4>\"$3\"",
                "sh",
            ])
            .args([folder, &commands, &messages])
            .env("HOME", folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        let commands = OpenOptions::new().write(true).open(commands).expect("it is read");
        let messages = BufReader::new(File::open(messages).expect("it is written"));
        let (session, requested) = (Value::Null, Vec::new());
        let mut browser = Self { process, commands, messages, session, sent: 0, requested };
        let targets = browser.ask("Target.getTargets", json!({}));
        let pages = targets["targetInfos"].as_array().expect("a list");
        let page = pages.iter().find(|target| target["type"] == "page").expect("a page");
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        browser.session = browser.ask("Target.attachToTarget", attach)["sessionId"].clone();
        browser.ask("Network.enable", json!({}));
        browser
    }

    /// Sends a command and waits for its answer.
    pub(crate) fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.sent += 1;
        let mut command = json!({ "id": self.sent, "method": method, "params": parameters });
        if !self.session.is_null() {
            command["sessionId"] = self.session.clone();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).expect("it is read");
        loop {
            let message = self.message();
            if message["id"] == self.sent {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    fn message(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.messages.read_until(0, &mut bytes).expect("it is written");
        let message: Value = serde_json::from_slice(bytes.strip_suffix(b"\0").unwrap_or(&bytes))
            .expect("the browser lives, and a message is JSON");
        if message["method"] == "Network.requestWillBeSent" {
            let url = message["params"]["request"]["url"].as_str().expect("text");
            self.requested.push(url.to_owned());
        }
        message
    }

    /// Opens a page and waits until its scripts have run.
    pub(crate) fn open(&mut self, url: &str) {
        self.ask("Page.enable", json!({}));
        self.ask("Page.navigate", json!({ "url": url }));
        while self.message()["method"] != "Page.loadEventFired" {}
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        let answer = self.ask("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression in the page is true.
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.value(expression) != Value::Bool(true) {
            assert!(begun.elapsed() < PATIENCE, "{expression} stays false");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Clicks with the mouse on the top left corner of an element, where its name is.
    pub(crate) fn click(&mut self, selector: &str) {
        let place = self.value(&format!(
            "(() => {{ const element = document.querySelector('{selector}'); element.scrollIntoView(); \
             const box = element.getBoundingClientRect(); return [box.left + 6, box.top + 6]; }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let (x, y) = (&place[0], &place[1]);
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.ask("Input.dispatchMouseEvent", event);
        }
    }

    pub(crate) fn type_text(&mut self, text: &str) {
        self.ask("Input.insertText", json!({ "text": text }));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser's other processes end with the main process.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
