# frozen_string_literal: true

require "json"

require_relative "../commands"

# The cache of responses: the stored responses, their use, and their removal.
class CacheTest < Minitest::Test
  include Commands

  # Responds as the query demands: `cc`, the fields of `h`, and a number unique to each response. A
  # request for /slow waits while the file `gate` exists.
  APPLICATION = <<~'RUBY'
    numbers = Queue.new
    100_000.times { |number| numbers << number }
    run lambda { |env|
      query = env["QUERY_STRING"].split("&").to_h { |pair| pair.split("=", 2) }
      log = File.expand_path("requests")
      said = env.values_at("REQUEST_METHOD", "PATH_INFO", "HTTP_IF_NONE_MATCH").join(" ")
      File.write(log, "#{said}\n", mode: "a")
      sleep 0.005 while env["PATH_INFO"] == "/slow" && File.exist?("gate")
      exit!(9) if query["dies"] && !File.exist?("dead") && File.write("dead", "")
      fields = { "content-type" => "text/plain" }
      fields["cache-control"] = query["cc"].gsub("+", ", ") if query["cc"]
      fields[query["h"].split(":")[0]] = query["h"].split(":")[1] if query["h"]
      fields["etag"] = query["etag"] if query["etag"]
      next [304, fields, []] if query["etag"] && query["etag"] == env["HTTP_IF_NONE_MATCH"]
      raise "no" if File.exist?("broken")
      body = "#{Process.pid} #{numbers.pop}\n"
      pieces = Enumerator.new do |out|
        out << body
        raise "cut" if query["cut"]
        out << body
      end
      [(query["status"] || 200).to_i, fields, query["pieces"] ? pieces : [body]]
    }
  RUBY

  def start_with_cache(*arguments, size: "8M", words: "")
    write("config.ru", APPLICATION)
    @control = File.join(@folder, "control.sock")
    write("config/puma.rb", "activate_control_app 'unix://#{@control}', auth_token: 't'\n#{words}")
    start("-e", "production", "--cache", size, *arguments)
  end

  def ctl(*arguments)
    out, said, status = run_ctl(*arguments)
    assert_predicate status, :success?, said
    JSON.parse(out)
  end

  def run_ctl(*arguments)
    Open3.capture3(BINARY, "ctl", "-C", "unix://#{@control}", "-T", "t", *arguments)
  end

  def counts = ctl("stats").fetch("cache")

  def requests = File.exist?(path("requests")) ? File.readlines(path("requests"), chomp: true) : []

  def path(name) = File.join(@folder, name)

  # Whether two equal requests get the same response.
  def cached?(target, fields = "")
    first = get(target, fields).body
    first == get(target, fields).body
  end

  def test_a_public_response_is_served_by_all_workers_without_the_application
    start_with_cache("-w", "2")
    first = get("/a?cc=max-age=60")
    assert_equal "Thruway; fwd=uri-miss; stored", first["cache-status"]
    again = Array.new(20) { get("/a?cc=max-age=60") }
    assert_equal [first.body], again.map(&:body).uniq
    assert_match(/\AThruway; hit; ttl=\d+\z/, again.last["cache-status"])
    assert_equal first["date"], again.last["date"]
    head = get("/a?cc=max-age=60", method: "HEAD")
    assert_equal [200, first.body.bytesize.to_s], [head.status, head["content-length"]]
    part = get("/a?cc=max-age=60", "Range: bytes=1-3\r\n")
    assert_equal [206, first.body[1..3]], [part.status, part.body]
    assert_equal 1, requests.size
    assert_operator counts["hits"], :>=, 22
  end

  def test_what_is_not_public_is_asked_for_each_time
    start_with_cache
    refute cached?("/?x=1")
    refute cached?("/?cc=private+max-age=60")
    refute cached?("/?cc=no-store+max-age=60")
    refute cached?("/?cc=max-age=60&h=set-cookie:a=b")
    refute cached?("/?cc=max-age=60&h=vary:*")
    refute cached?("/?cc=public+max-age=60", "Authorization: Basic YTpi\r\n")
    refute cached?("/?cc=max-age=60", "Cookie: a=b\r\n")
    assert cached?("/?cc=max-age=60+public", "Cookie: a=b\r\n")
    assert cached?("/404?cc=max-age=60&status=404")
    assert_equal 0, counts["hits"] - 2
  end

  def test_variants_and_hosts_have_responses_of_their_own
    start_with_cache
    target = "/?cc=max-age=60&h=vary:accept-language"
    german, english = %w[de en].map do |language|
      get(target, "Accept-Language: #{language}\r\n").body
    end
    refute_equal german, english
    assert_equal german, get(target, "Accept-Language: de\r\n").body
    foreign = get("/?cc=max-age=60", "X-Forwarded-Host: evil.example\r\n")
    refute_equal foreign.body, get("/?cc=max-age=60").body
  end

  def test_a_broken_or_cut_body_is_not_stored
    start_with_cache
    assert cached?("/?cc=max-age=60&pieces=1")
    2.times do
      assert_raises(NoMethodError, EOFError, Errno::ECONNRESET) do
        get("/?cc=max-age=60&pieces=1&cut=1")
      end
    end
    assert_equal 2, requests.size - 1
  end

  def test_a_stored_response_is_validated_and_a_client_gets_304
    start_with_cache
    target = "/v?cc=no-cache+max-age=60&etag=%22a%22"
    first = get(target)
    second = get(target)
    assert_equal [first.body, "Thruway; fwd=stale; fwd-status=304"],
                 [second.body, second["cache-status"]]
    assert_equal ["GET /v ", "GET /v %22a%22"], requests
    fresh = "/f?cc=max-age=60&etag=%22b%22"
    get(fresh)
    known = get(fresh, "If-None-Match: %22b%22\r\n")
    assert_equal 200, known.status, "a tag without quotes is none"
    assert_equal 504, get("/unknown", "Cache-Control: only-if-cached\r\n").status
    assert_equal 1, counts["revalidated"]
  end

  def test_a_stale_response_is_served_while_the_application_fails
    start_with_cache
    target = "/?cc=max-age=0+stale-if-error=600"
    body = get(target).body
    write("broken", "")
    stale = get(target)
    assert_equal [200, body, "Thruway; hit; fwd=stale; fwd-status=500"],
                 [stale.status, stale.body, stale["cache-status"]]
    assert_equal 500, get("/other").status
  end

  def test_a_stale_response_is_sent_while_the_application_makes_a_new_one
    start_with_cache("-w", "2")
    target = "/slow?cc=max-age=0+stale-while-revalidate=600"
    first = get(target).body
    write("gate", "")
    assert_equal [first], Array.new(8) { get(target).body }.uniq
    eventually { requests.size == 2 }
    FileUtils.rm_f(path("gate"))
    eventually { get(target).body != first }
    assert_operator counts["stale"], :>=, 9
    assert_equal 0, counts["collapsed"]
  end

  def test_a_change_removes_the_page_and_a_purge_what_it_names
    start_with_cache("-w", "2")
    targets = %w[/a /a/b /c].map { |page| "#{page}?cc=max-age=60" }
    before = targets.map { |target| get(target).body }
    assert_equal 200, get("/a?cc=max-age=60", method: "POST", body: "x").status
    after = targets.map { |target| get(target).body }
    assert_equal(after[1..], before[1..])
    refute_equal(after[0], before[0])
    assert_equal({ "purged" => 2 }, ctl("purge", "/a*"))
    assert_equal({ "purged" => 1 }, ctl("purge", "HTTP://test.example:81/c?cc=max-age=60"))
    assert_equal({ "purged" => 0 }, ctl("purge", "*"))
    assert_empty after & targets.map { |target| get(target).body }
    assert_equal({ "purged" => 3 }, ctl("purge", "*"))
    _, said, status = run_ctl("purge", "c")
    assert_equal [2, true], [status.exitstatus, said.include?("a path, or * for all")]
  end

  # Returns a client that has sent a request.
  def ask(target) = connect.send("GET #{target} HTTP/1.1\r\nHost: test.example:81\r\n\r\n")

  # Sends requests for one page while the application generates it.
  def crowd(target, count: 12)
    write("gate", "")
    clients = Array.new(count) { ask(target) }
    eventually { requests.any? }
    yield
    FileUtils.rm_f(path("gate"))
    clients.map(&:response)
  end

  def test_one_request_goes_to_the_application_while_others_wait
    start_with_cache("-w", "2")
    responses = crowd("/slow?cc=max-age=60") { eventually { counts["collapsed"] == 11 } }
    assert_equal [[200], 1, 1],
                 [responses.map(&:status).uniq, responses.map(&:body).uniq.size, requests.size]
  end

  def test_those_that_wait_go_on_when_the_response_cannot_be_shared
    start_with_cache("-w", "2", "-t", "16")
    responses = crowd("/slow?cc=private") { eventually { counts["collapsed"] == 11 } }
    assert_equal 12, responses.map(&:body).uniq.size
    # By now the server knows that these requests cannot share a response.
    again = crowd("/slow?cc=private") { eventually { requests.size == 24 } }
    assert_equal [12, 11], [again.map(&:body).uniq.size, counts["collapsed"]]
  end

  def test_those_that_wait_go_on_when_the_worker_dies
    start_with_cache("-w", "2")
    targets = (1..).lazy.map { |turn| "/slow?cc=max-age=60&dies=1&turn=#{turn}" }
    # Repeats until some of the waiting requests are at the other worker.
    target = targets.find { |each| bodies_after_a_death(each).any? }
    assert cached?(target)
  end

  # Returns the responses to requests that wait for a response whose worker dies.
  def bodies_after_a_death(target)
    [path("dead"), path("requests")].each { |name| FileUtils.rm_f(name) }
    write("gate", "")
    before = counts["collapsed"]
    first = ask(target)
    eventually { requests.any? }
    others = Array.new(4) { ask(target) }
    eventually { counts["collapsed"] == before + 4 }
    FileUtils.rm_f(path("gate"))
    assert_predicate first, :closed?
    # The waiting requests of the dead worker are lost with it. Those of the other worker get a
    # response.
    bodies = others.filter_map { |client| client.closed? ? nil : client.response.body }
    assert_operator bodies.uniq.size, :<=, 1, bodies.inspect
    bodies
  end
end
