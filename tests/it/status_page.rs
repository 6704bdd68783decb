//! The live page of a server, in Chromium: on a phone, dark and light, with nothing from outside.

use serde_json::{Value, json};
use thruway_testing::skipped;

use crate::browser::Browser;
use crate::http::Server;
use crate::thruway;

#[test]
fn the_live_page_shows_clients_and_workers_wherever_it_is_read() {
    if std::process::Command::new("chromium").arg("--version").output().is_err() {
        return skipped(format_args!("chromium is not installed"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a.txt"), "a").expect("it is written");
    let mut command = thruway();
    command.arg("serve").arg(folder.path()).args(["-p", "0", "-w", "2", "--status"]);
    command.args(["--metrics", "tcp://127.0.0.1:0", "--fair-by", "header:X-Client"]);
    let (server, address) = Server::start_with_metrics(&mut command);
    for client in ["busy", "busy", "<b id=markup>x</b>"] {
        assert_eq!(server.get("/a.txt", &format!("X-Client: {client}\r\n")).status, 200);
    }
    let mut browser = Browser::start(folder.path());
    browser.open(&format!("{address}/"));
    browser.wait_for("document.querySelectorAll('#clients .bar').length === 2");
    let names = browser.value(
        "[...document.querySelectorAll('#clients td.name')].map((cell) => cell.textContent).sort()",
    );
    assert_eq!(names, json!(["<b id=markup>x</b>", "busy"]));
    assert_eq!(browser.value("document.querySelector('#markup')"), Value::Null);
    assert_eq!(browser.value("document.querySelectorAll('#workers .bar').length"), 2);
    let slowest = "document.querySelectorAll('#slowest td.name').length";
    assert_eq!(browser.value(slowest), 3);
    browser.wait_for("/^2 of 2 workers serve/.test(document.querySelector('#state').textContent)");

    // A second look at the server makes lines of the points.
    let lines = "[...document.querySelectorAll('#inside polyline')]\
                 .map((line) => line.getAttribute('points').split(' ').length)";
    browser.wait_for(&format!("{lines}.every((points) => points >= 2)"));
    assert_eq!(browser.value(&format!("{lines}.length")), 3);

    for (width, height) in [(320, 640), (390, 844), (1200, 900)] {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": true });
        browser.ask("Emulation.setDeviceMetricsOverride", size);
        let shown = browser.value("document.documentElement.scrollWidth");
        assert!(shown.as_u64() <= Some(width), "{shown} of {width} pixels");
        // No table is cut at the edge.
        let is_whole = "[...document.querySelectorAll('.scroll')]\
                        .every((part) => part.scrollWidth <= part.clientWidth)";
        assert!(width < 390 || browser.value(is_whole) == true, "{width} pixels");
    }
    let background = |browser: &mut Browser, scheme: &str| {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        browser.ask("Emulation.setEmulatedMedia", json!({ "features": features }));
        let canvas = "(() => { const made = document.createElement('i'); document.body.append(made); \
                      made.style.color = 'Canvas'; const color = getComputedStyle(made).color; \
                      made.remove(); return color; })()";
        browser.value(canvas)
    };
    let [light, dark] = ["light", "dark"].map(|scheme| background(&mut browser, scheme));
    assert_ne!(light, dark);

    assert!(server.stop("-TERM").success());
    browser.wait_for("document.querySelector('#state').className === 'bad'");
    let foreign = browser.requested.iter().filter(|url| !url.starts_with(&address));
    assert_eq!(foreign.count(), 0, "{:?}", browser.requested);
}
