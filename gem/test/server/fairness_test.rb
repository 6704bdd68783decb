# frozen_string_literal: true

require "json"

require_relative "../commands"

# The order of turns of a proxy's connections, and the responses of the server itself.
class FairnessTest < Minitest::Test
  include Commands

  # An application whose requests take some milliseconds and record the order of their turns. The
  # first request waits for the file `gate`, so that all others have arrived before any has its
  # turn.
  TURNS = <<~'RUBY'
    TURNS = Queue.new
    clock = Process::CLOCK_THREAD_CPUTIME_ID
    run(lambda do |env|
      if env["PATH_INFO"] == "/gate"
        sleep 0.01 until File.exist?("gate")
        [200, {}, []]
      elsif env["PATH_INFO"] == "/turns"
        [200, {}, [Array.new(TURNS.size) { TURNS.pop }.join]]
      else
        TURNS << env["HTTP_X_FORWARDED_FOR"].to_s[-1]
        over = Process.clock_gettime(clock) + 0.02
        nil while Process.clock_gettime(clock) < over
        [200, {}, ["ok"]]
      end
    end)
  RUBY

  # Sends many requests of one client and then one of another. Returns the order of their turns.
  def turns(*arguments, settings: "")
    write("config.ru", TURNS)
    write("config/puma.rb", settings)
    FileUtils.rm_f("#{@folder}/gate")
    pid = start("-w", "0", "-t", "1", "--metrics", "unix://#{@folder}/metrics", *arguments)
    first = ask("10.0.0.3", "/gate")
    clients = [*Array.new(10) { "10.0.0.1" }, "10.0.0.2"].map { |client| ask(client) }
    eventually { waiting == clients.size }
    write("gate", "")
    [first, *clients].each { |client| assert_equal 200, client.response.status }
    get("/turns").body
  ensure
    stop(pid)
  end

  # Returns the number of requests that wait for their turn.
  def waiting
    stats = Client.new(UNIXSocket.new("#{@folder}/metrics")).request("/stats").body
    JSON.parse(stats).dig("workers", 0, "waiting")
  end

  def ask(client, path = "/")
    connect.send("GET #{path} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 127.0.0.1, #{client}\r\n\r\n")
  end

  def test_a_client_behind_a_proxy_has_its_turn_whatever_others_connections
    by_header = turns("--fair-by", "header:X-Forwarded-For")
    assert_operator by_header.index("2"), :<=, 3, by_header
    by_file = turns(settings: 'fair_by header: "X-Forwarded-For"')
    assert_operator by_file.index("2"), :<=, 3, by_file
    assert_operator turns.index("2"), :>, 5
  end

  def test_a_wrong_word_is_told_in_one_line
    write("config.ru", HELLO)
    _, said, status = Open3.capture3(BINARY, "serve", @folder, "--fair-by", "ip")
    assert_equal 2, status.exitstatus
    assert_includes said, '"ip" is neither connection, address nor header:NAME'
    path = write("config/puma.rb", "fair_by :ip")
    said = refusal(@folder, "-p", "0")
    assert_includes said, "cannot read #{File.realpath(path)}: fair_by takes :connection, :address"
  end

  # The first request is in the application as soon as the file `begun` is there.
  BUSY = <<~'RUBY'
    run(lambda do |env|
      File.write("begun", "")
      nil until File.exist?("over")
      [200, {}, ["ok"]]
    end)
  RUBY

  def test_a_worker_that_computes_still_tells_its_health
    write("config.ru", BUSY)
    write("config/puma.rb", 'health_check "/up"')
    start("-t", "1")
    busy = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    3.times { assert_equal 200, get("/up").status }
    write("over", "")
    assert_equal 200, busy.response.status
  end

  # Returns a client whose request is in the application. On a busy machine, a request may have
  # waited too long before its turn.
  def busy_client
    client = nil
    eventually do
      client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
      eventually { File.exist?("#{@folder}/begun") || client.io.wait_readable(0) }
      File.exist?("#{@folder}/begun")
    end
    client
  end

  def test_what_has_waited_too_long_gets_503_while_the_worker_computes
    write("config.ru", BUSY)
    write("config/puma.rb", "queue_seconds_max 0.2\nhealth_check '/up'")
    start("-t", "1")
    busy = busy_client
    assert_equal 200, get("/up").status
    late = get("/late")
    assert_equal [503, "1"], [late.status, late["retry-after"]]
    assert_includes late.body, "the request has waited too long"
    write("over", "")
    assert_equal 200, busy.response.status
    # This request has its turn in time. A busy machine may be late for the first.
    eventually { get("/in_time").status == 200 }
  end
end
