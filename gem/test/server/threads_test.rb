# frozen_string_literal: true

require_relative "../serving"

class ThreadsTest < Minitest::Test
  include Serving

  def test_a_blocked_application_leaves_the_road_to_others
    gate = Queue.new
    serve(threads: 2) do |env|
      gate.pop if env["PATH_INFO"] == "/wait"
      [200, {}, [env["PATH_INFO"]]]
    end
    waiting = connect.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
    20.times { assert_equal "/go", get("/go").body }
    gate << true
    assert_equal "/wait", waiting.response.body
  end

  def test_a_thread_that_comes_back_serves_what_waits_behind_a_leader_that_blocks
    entered = Queue.new
    gates = { "/first" => Queue.new, "/second" => Queue.new }
    computes = true
    serve(threads: 2) do |env|
      path = env["PATH_INFO"]
      entered << path
      # The request computes for less than the limit of a long one.
      nil while computes && path == "/second"
      gates[path]&.pop
      [200, {}, [path]]
    end
    first, second, third = Array.new(3) { connect }
    first.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n")
    entered.pop
    second.send("GET /second HTTP/1.1\r\nHost: a\r\n\r\n")
    entered.pop
    third.send("GET /third HTTP/1.1\r\nHost: a\r\n\r\n")
    # The standby has noticed that the request waits, and that no thread is free.
    sleep 0.1
    gates["/first"] << true
    assert_equal "/first", first.response.body
    # The thread of the request continues.
    sleep 0.1
    computes = false
    assert_equal "/third", Timeout.timeout(PATIENCE_SECONDS) { third.response.body }
    gates["/second"] << true
    assert_equal "/second", second.response.body
  end

  # Clients of as many requests as there are, each of which waits in the application.
  def waiting_clients(count, entered)
    clients = Array.new(count) { connect.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n") }
    count.times { Timeout.timeout(PATIENCE_SECONDS) { entered.pop } }
    clients
  end

  # Serves `count` waiting requests, beside which other requests are answered.
  def assert_waits_leave_the_road(count, mark: nil, **limits)
    entered = Queue.new
    gate = Queue.new
    serve(**limits) do |env|
      if env["PATH_INFO"] == "/wait"
        env[mark].call if mark
        entered << true
        gate.pop
      end
      [200, {}, [env["PATH_INFO"]]]
    end
    clients = waiting_clients(count, entered)
    Timeout.timeout(PATIENCE_SECONDS) { 20.times { assert_equal "/go", get("/go").body } }
    count.times { gate << true }
    clients.each { |client| assert_equal "/wait", client.response.body }
    assert_equal "/go", get("/go").body
  end

  def test_threads_start_beside_those_that_wait
    assert_waits_leave_the_road(8, threads: 1, waiting_threads: 8)
  end

  def test_threads_start_beside_those_of_marked_requests
    assert_waits_leave_the_road(3, mark: "puma.mark_as_io_bound", threads: 1, max_io_threads: 3)
  end

  def test_threads_between_minimum_and_maximum_start_when_they_are_needed
    assert_waits_leave_the_road(3, mark: "thruway.mark_as_io_bound", threads_min: 1, threads: 4)
  end

  def test_no_more_threads_start_than_are_allowed
    names = Queue.new
    gate = Queue.new
    serve(threads: 1, waiting_threads: 2) do
      names << Thread.current.name
      gate.pop
      [200, {}, []]
    end
    clients = Array.new(6) { connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n") }
    first = Array.new(3) { Timeout.timeout(PATIENCE_SECONDS) { names.pop } }
    6.times { gate << true }
    clients.each { |client| assert_equal 200, client.response.status }
    rest = Array.new(3) { names.pop }
    assert_equal 3, first.uniq.size
    assert_empty rest - first
  end

  def test_requests_that_compute_for_long_leave_the_road_to_others
    is_over = false
    serve(threads: 3) do |env|
      nil until is_over || env["PATH_INFO"] == "/go"
      [200, {}, [env["PATH_INFO"]]]
    end
    computing = Array.new(2) { connect.send("GET /compute HTTP/1.1\r\nHost: a\r\n\r\n") }
    Timeout.timeout(PATIENCE_SECONDS) { 5.times { assert_equal "/go", get("/go").body } }
    is_over = true
    computing.each { |client| assert_equal "/compute", client.response.body }
    assert_equal "/go", get("/go").body
  end

  def test_the_standby_sleeps_while_nothing_is_in_the_application
    others = standbys
    serve(threads: 2) { [200, {}, ["ok"]] }
    assert_equal "ok", get.body
    standby = await_standby(others)
    eventually do
      before = wake_ups(standby)
      sleep 0.2
      wake_ups(standby) == before
    end
  end

  def test_a_busy_application_is_not_watched_while_nothing_waits
    others = standbys
    serve(threads: 2) do
      # The sleep suffices for the standby to notice that this call lasts.
      sleep 0.1
      standby = await_standby(others)
      first = wake_ups(standby)
      1_000_000.times { |number| number.to_s }
      [200, {}, [(wake_ups(standby) - first).to_s]]
    end
    assert_operator Integer(get.body), :<, 5
  end

  # The threads of the standbys, of which those of earlier servers may be ending.
  def standbys = Dir["/proc/self/task/*"].select { |path| standby?(path) }

  # Returns the standby of the only server that was started since. It may not have its name yet.
  def await_standby(others) = eventually { (standbys - others).first }

  # Returns the number of times that the standby has gone to sleep.
  def wake_ups(standby)
    Integer(File.read("#{standby}/status")[/^voluntary_ctxt_switches:\s+(\d+)/, 1])
  end

  def standby?(path)
    File.read("#{path}/comm") == "thruway-standby\n"
  rescue Errno::ENOENT, Errno::ESRCH
    false
  end

  def test_as_many_requests_wait_together_as_there_are_threads
    inside = Queue.new
    gate = Queue.new
    serve(threads: 4) do
      inside << true
      gate.pop
      [200, {}, ["ok"]]
    end
    clients = Array.new(8) { connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n") }
    4.times { inside.pop }
    assert_predicate inside, :empty?
    8.times { gate << true }
    clients.each { |client| assert_equal "ok", client.response.body }
  end

  def test_requests_of_all_kinds_come_through_under_load
    serve(threads: 4) do |env|
      case env["PATH_INFO"]
      when "/sleep" then sleep(0.002)
      when "/busy" then 2000.times { |n| n.to_s }
      end
      [200, {}, [env["PATH_INFO"]]]
    end
    threads = Array.new(12) do |number|
      Thread.new do
        client = connect
        Array.new(60) { |n| client.request(%w[/ /sleep /busy][(n + number) % 3]).body }
      end
    end
    all = threads.map(&:value)
    assert_equal 12 * 60, all.flatten.size
    assert_equal %w[/ /busy /sleep], all.flatten.uniq.sort
  end

  def test_requests_in_one_packet_do_not_wait_for_an_event_that_never_comes
    gate = Queue.new
    serve { |env| gate.pop && [200, {}, [env["PATH_INFO"]]] }
    client = connect.send(%w[/1 /2 /3].map { |p| "GET #{p} HTTP/1.1\r\nHost: a\r\n\r\n" }.join)
    %w[/1 /2 /3].each do |path|
      sleep 0.02
      gate << true
      assert_equal path, client.response.body
    end
  end

  def test_stopping_waits_for_what_was_asked
    gate = Queue.new
    server = serve { gate.pop && [200, {}, ["last words"]] }
    client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    idle = connect
    eventually { server.engine.requests == 1 && server.engine.connections == 2 }
    server.stop(20)
    assert_predicate idle, :closed?
    gate << true
    assert_equal "last words", client.response.body
    assert_predicate client, :closed?
    @servings[0][1].join
  end

  def test_a_client_that_asks_for_nothing_does_not_hold_up_a_stop
    server = serve { [200, {}, []] }
    client = connect
    eventually { server.engine.connections == 1 }
    said = stderr_of { server.stop(PATIENCE_SECONDS).join }
    assert_empty said, "no thread is still busy when the time of the stop is over"
    assert_predicate client, :closed?
  end

  def test_stopping_before_the_server_runs_ends_it_as_soon_as_it_does
    listeners = Thruway::Listeners.new(["tcp://127.0.0.1:0"])
    configuration = Thruway::Configuration.new
    server = Thruway::Server.new(->(_) {}, configuration, listeners.descriptors)
    stopper = server.stop(PATIENCE_SECONDS)
    eventually { stopper.stop? }
    run = Thread.new { server.run }
    [run, stopper].each { |thread| assert thread.join(PATIENCE_SECONDS) }
  ensure
    listeners&.close
  end

  def test_a_thread_that_never_ends_is_ended
    server = serve { sleep }
    client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    eventually { server.engine.requests == 1 }
    said = stderr_of do
      server.stop(0.1)
      @servings[0][1].join(PATIENCE_SECONDS)
    end
    assert_includes said, "threads are still busy"
    assert_equal 503, client.response.status
    assert_predicate client, :closed?
  end

  # Returns the number of times that threads with this name have waited.
  def waits_of(name)
    tasks = Dir["/proc/self/task/*"].select do |task|
      File.read("#{task}/comm").chomp == name
    rescue Errno::ENOENT, Errno::ESRCH
      # The thread has just ended.
      false
    end
    tasks.sum { |task| File.read("#{task}/status")[/^voluntary_ctxt_switches:\s+(\d+)/, 1].to_i }
  end

  def compute(seconds)
    limit = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + seconds
    nil until Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) > limit
  end

  # Before Ruby 3.2, the watchdog itself checks a call that computes, at long intervals.
  def test_a_request_that_computes_is_looked_at_a_few_times
    serve do
      compute(0.2)
      [200, {}, ["done"]]
    end
    client = connect
    client.request
    before, began = waits_of("thruway-watch"), Process.clock_gettime(Process::CLOCK_MONOTONIC)
    5.times { client.request }
    milliseconds = (Process.clock_gettime(Process::CLOCK_MONOTONIC) - began) * 1000
    # The watchdog checks every eight milliseconds and not every millisecond, however long the
    # machine takes.
    assert_operator waits_of("thruway-watch") - before, :<, milliseconds / 3
  end
end
