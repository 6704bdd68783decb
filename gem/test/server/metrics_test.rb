# frozen_string_literal: true

require "json"

require_relative "../commands"

# The metrics, the health check and the statistics of a server.
class MetricsTest < Minitest::Test
  include Commands

  # Reads a page with Prometheus' own library, and prints the samples as JSON.
  PARSER = <<~PYTHON
    import json, sys
    from prometheus_client.parser import text_string_to_metric_families
    families = list(text_string_to_metric_families(sys.stdin.read()))
    assert all(family.documentation for family in families)
    print(json.dumps([[s.name, s.labels, s.value, f.type] for f in families for s in f.samples]))
  PYTHON

  SLEEPY = <<~'RUBY'
    run lambda { |env|
      sleep 0.01 until env["QUERY_STRING"].empty? || File.exist?(env["QUERY_STRING"])
      GC.start if env["PATH_INFO"] == "/gc"
      raise "no" if env["PATH_INFO"] == "/error"
      [200, {}, ["#{Process.pid}"]]
    }
  RUBY

  def start_with_metrics(*arguments, application: SLEEPY)
    write("config.ru", application)
    @metrics = File.join(@folder, "metrics.sock")
    start("--metrics", "unix://#{@metrics}", "-e", "production", *arguments)
  end

  def metrics_client
    Client.new(UNIXSocket.new(@metrics))
  end

  def ask(path)
    metrics_client.request(path)
  end

  def stats
    JSON.parse(ask("/stats").body)
  end

  # Whether the system's Python has the library of Prometheus.
  def parser? = system("/usr/bin/python3", "-c", "import prometheus_client", err: File::NULL)

  # Returns the samples with the name: their labels and values.
  def samples
    skip "python3-prometheus-client is not installed" unless parser?
    page = ask("/metrics")
    assert_equal "text/plain; version=0.0.4; charset=utf-8", page["content-type"]
    out, status = Open3.capture2("/usr/bin/python3", "-c", PARSER, stdin_data: page.body)
    assert_predicate status, :success?, page.body
    JSON.parse(out).group_by(&:first).transform_values do |rows|
      rows.to_h { |_, labels, value, _| [labels, value] }
    end
  end

  def total(name, labels = {})
    samples.fetch(name).select { |found, _| found >= labels }.values.sum
  end

  def test_the_library_of_prometheus_reads_the_page
    start_with_metrics("-w", "2", "-t", "3")
    5.times { assert_equal 200, get.status }
    assert_equal 500, get("/error").status
    assert_equal 400, connect.send("GET\r\n\r\n").response.status
    read = samples
    assert_equal 2.0, read["puma_workers"][{}]
    assert_equal 2.0, read["puma_booted_workers"][{}]
    assert_equal [3.0, 3.0], read["puma_max_threads"].values
    assert_equal([{ "index" => "0" }, { "index" => "1" }], read["puma_pool_capacity"].keys)
    assert_equal 6, total("puma_requests_count")
    { "2xx" => 5, "5xx" => 1, "4xx" => 1 }.each do |status, count|
      assert_equal count, total("thruway_responses_total", "status" => status), status
    end
    eventually { stats["times"]["application"]["count"] == 6 }
    read = samples
    %w[queue request application].each do |time|
      assert_equal 6, read["thruway_#{time}_seconds_count"][{}], time
      assert_operator read["thruway_#{time}_seconds_sum"][{}], :>, 0, time
      assert_equal 6, read["thruway_#{time}_seconds_bucket"][{ "le" => "+Inf" }], time
    end
    assert_equal 0, read["thruway_proxy_queue_seconds_count"][{}]
    assert_operator read["thruway_resident_memory_bytes"].values.min, :>, 1 << 20
  end

  DOCUMENT = File.read(File.expand_path("../../../docs/reference/metrics.md", __dir__))

  def test_the_document_has_each_name_with_its_type_and_labels
    start_with_metrics("-w", "1", "-t", "1", "--cache", "4M")
    text = ask("/metrics").body
    said = DOCUMENT.scan(/^\| `(\w+)` \| (gauge|counter|untyped|histogram) \| ([^|]*)\|/)
    # The tests of automatic certificates look at these: an authority belongs to them.
    said.reject! { |name, *| name.start_with?("thruway_certificate_") }
    told = text.scan(/^# TYPE (\w+) (\w+)$/)
    assert_equal told.sort, said.map { |name, type, _| [name, type] }.sort
    said.each do |name, type, labels|
      next if type == "histogram"

      found = text[/^#{name}(?:\{(.*)\})? /, 1].to_s.scan(/(\w+)=/).flatten
      assert_equal labels.scan(/\w+/), found, name
    end
  end

  def test_one_process_has_the_same_names
    start_with_metrics("-w", "0", "-t", "2")
    get
    read = samples
    assert_equal({ { "index" => "0" } => 1.0 }, read["puma_requests_count"])
    assert_equal({ { "index" => "0" } => 2.0 }, read["puma_pool_capacity"])
    assert_equal 1.0, read["puma_booted_workers"][{}]
  end

  def test_requests_that_wait_and_threads_that_are_busy_are_seen_meanwhile
    start_with_metrics("-w", "1", "-t", "2")
    go = File.join(@folder, "go")
    clients = Array.new(5) { connect.send("GET /?#{go} HTTP/1.1\r\nHost: a\r\n\r\n") }
    eventually { stats["workers"][0].values_at("busy_threads", "waiting") == [2, 3] }
    read = samples
    assert_equal [2, 3], [read["rack_active_workers"][{}], read["rack_queued_requests"][{}]]
    index = { "index" => "0" }
    { "puma_backlog" => 3, "puma_busy_threads" => 5, "puma_pool_capacity" => 0 }
      .each { |name, count| assert_equal count, read[name][index], name }
    write("go", "")
    clients.each { |client| assert_equal 200, client.response.status }
    eventually { stats["workers"][0].values_at("busy_threads", "waiting") == [0, 0] }
    read = samples
    assert_equal 5, read["thruway_application_seconds_count"][{}]
    assert_operator read["thruway_queue_seconds_sum"][{}], :>, 0.01
  end

  def test_they_are_read_while_ruby_computes
    start_with_metrics("-w", "0", "-t", "1", application: <<~RUBY)
      run ->(_) { (7**200_000).to_s until File.exist?("#{@folder}/go"); [200, {}, []] }
    RUBY
    busy = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    eventually { stats["workers"][0]["busy_threads"] == 1 }
    assert_equal 200, ask("/live").status
    write("go", "")
    assert_equal 200, busy.response.status
  end

  def test_a_collection_and_a_proxy_time_are_counted
    start_with_metrics("-w", "0", "-t", "1")
    before = total("thruway_gc_pause_seconds_count")
    get("/gc")
    # Before Ruby 3.3, a pause is counted after the call, and the client does not wait for the
    # count.
    eventually { total("thruway_gc_pause_seconds_count") > before }
    started = Time.now
    get("/", "X-Request-Start: t=#{((started.to_f - 2) * 1000).to_i}\r\n")
    ages = 1.9..(Time.now - started + 2.1)
    assert_equal 1, total("thruway_proxy_queue_seconds_count")
    assert_includes ages, total("thruway_proxy_queue_seconds_sum")
  end

  def test_counters_outlive_a_worker
    pid = start_with_metrics("-w", "2", "-t", "1")
    Process.kill("KILL", Integer(get.body))
    eventually { stats["workers"].sum { |worker| worker["starts"] } == 3 }
    eventually { stats["booted_workers"] == 2 }
    assert_equal 1, total("thruway_requests_total")
    assert_predicate stop(pid), :success?
    refute_path_exists @metrics
  end

  def test_a_client_that_leaves_is_counted
    start_with_metrics("-w", "0", "-t", "1")
    connect.send("GET /?#{@folder}/go HTTP/1.1\r\nHost: a\r\n\r\n").io.close
    eventually { stats["workers"][0]["requests"] == 1 }
    write("go", "")
    get
    ended = -> { stats["workers"][0].values_at("responses", "aborted").flatten.sum }
    eventually { ended.call == 2 }
  end

  def test_the_busiest_client_is_found_by_what_fair_by_says
    start_with_metrics("-w", "2", "-t", "1", "--fair-by", "header:X-Client")
    3.times { get("/gc", "X-Client: busy\r\n") }
    write("secret", "")
    get("/?#{@folder}/secret", "X-Client: <idle>\r\n")
    read = stats
    clients = read["clients"].to_h { |client| client.values_at("name", "requests") }
    assert_equal({ "busy" => 3, "<idle>" => 1 }, clients)
    assert_equal "busy", read["clients"][0]["name"]
    assert_operator read["lately"]["busiest_ratio"], :>, 0.5
    shown = read["slowest"].map { |slow| slow["request"] }
    assert_equal ["GET /", "GET /gc"], shown.uniq.sort, "no query is shown"
    refute_includes ask("/stats").body, "<"
  end

  def test_clients_that_hang_hurt_no_other
    start_with_metrics("-w", "1", "-t", "1")
    hung = Array.new(20) { metrics_client.send("GET /metrics HTT") }
    hung += Array.new(20) { metrics_client.send("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 20) }
    10.times { assert_equal 200, get.status }
    assert_equal 10, total("puma_requests_count"), "those of metrics are not counted"
    hung.each { |client| client.io.close }
  end

  def test_what_else_is_asked_there
    start_with_metrics("-w", "0", "-t", "1")
    assert_equal [200, "alive\n"], ask("/live").to_a.values_at(0, 2)
    assert_equal 200, ask("/ready").status
    assert_equal 404, ask("/other").status
    refused = metrics_client.request("/metrics", method: "POST", body: "x")
    assert_equal [405, "GET, HEAD"], [refused.status, refused["allow"]]
    assert_equal "", metrics_client.request("/metrics", method: "HEAD").body
    refute_includes ask("/").body, "<html"
    assert_equal 200, get("/metrics").status, "the application's own"
    kept = metrics_client
    2.times { assert_equal 200, kept.request("/metrics").status }
  end

  def test_requests_and_metrics_have_a_port_each_where_the_system_chooses
    write("config.ru", HELLO)
    address = "tcp://127.0.0.1:0"
    out, said = IO.pipe
    @pids << spawn(BINARY, "serve", @folder, "-b", address, "--metrics", address, out: said)
    said.close
    # The server before a restart and the server after it have the same two addresses.
    announced = Array.new(2) do |number|
      Process.kill("USR2", @pids.last) if number == 1
      lines = Timeout.timeout(PATIENCE_SECONDS) { Array.new(2) { out.gets } }
      lines.join.scan(%r{^(?:serving|metrics) .*on (http://127\.0\.0\.1:\d+)})
    end
    serving, metrics = *announced.first.flatten
    refute_equal serving, metrics
    assert_equal announced.first, announced.last
    @address = serving
    assert_match(/\A\d+ /, get("/").body)
    @address = metrics
    # Asked by another name.
    assert_equal 421, get("/metrics").status
  end

  def test_a_live_page_needs_an_address
    write("config.ru", SLEEPY)
    assert_equal <<~TEXT, refusal(@folder, "--status", "-p", "0")
      thruway: --status needs a metrics listener

      hint: add --metrics URI
    TEXT
  end
end
