# frozen_string_literal: true

require_relative "../serving"

# Requests that are known to compute for long run in other threads than those that wait.
class ComputeLaneTest < Minitest::Test
  include Serving

  # A slice of a request counts as long from 10 ms on.
  LONG_S = 0.03
  # So many long requests that a server knows their route.
  LESSONS = 4
  # How long a request computes that waits for another one to go on.
  PATIENCE_S = 60

  def ask(path)
    connect.send("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n")
  end

  def compute(seconds)
    clock = Process::CLOCK_THREAD_CPUTIME_ID
    over = Process.clock_gettime(clock) + seconds
    nil while Process.clock_gettime(clock) < over
  end

  # Computes until the block is true.
  def compute_until
    over = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE_S
    nil until yield || Process.clock_gettime(Process::CLOCK_MONOTONIC) > over
    yield
  end

  # Earlier versions do not report that a thread waits.
  def setup
    skip "Ruby #{RUBY_VERSION} has no lane" if RUBY_VERSION < "3.2"
    super
  end

  # Serves requests that compute, and calls the block for others.
  def serve_lessons(**options)
    serve(**{ threads: 2, fibers: 64 }.merge(options)) do |env|
      compute(LONG_S) if env["QUERY_STRING"] == "lesson"
      [200, {}, [yield(env).to_s]]
    end
    LESSONS.times { |number| get("/report/#{number}?lesson") }
  end

  def test_a_request_that_computes_holds_up_no_fiber_that_waits
    gate = Queue.new
    gone_on = false
    serve_lessons do |env|
      case env["PATH_INFO"]
      when "/wait" then gate.pop && (gone_on = env["QUERY_STRING"].empty?)
      when "/report/9"
        gate << true
        compute_until { gone_on }
      end
    end
    # The first request of a route is on trial, and runs where those run that compute.
    gate << true
    get("/wait?trial")
    waiting = ask("/wait")
    eventually { gate.num_waiting == 1 }
    assert_equal "true", get("/report/9").body
    assert_equal "true", waiting.response.body
  end

  def test_requests_that_compute_run_one_after_the_other
    running = 0
    most = 0
    serve_lessons(threads: 4) do |env|
      next unless env["PATH_INFO"].start_with?("/report")

      most = [most, running += 1].max
      compute(LONG_S)
      running -= 1
    end
    clients = Array.new(6) { |number| ask("/report/#{number}") }
    clients.each { |client| assert_equal 200, client.response.status }
    assert_equal 1, most
  end

  def test_a_request_that_computes_and_waits_lets_the_next_begin
    inside = 0
    serve_lessons(threads: 3) do |env|
      next unless env["PATH_INFO"] == "/report/9"

      inside += 1
      sleep 0.001 until inside >= 4
      "met"
    end
    clients = Array.new(4) { ask("/report/9") }
    clients.each { |client| assert_equal "met", client.response.body }
  end

  def test_one_thread_serves_requests_of_both_kinds
    serve_lessons(threads: 1) { "here" }
    %w[/report/9 /other].each { |path| assert_equal "here", get(path).body }
  end

  def test_requests_that_compute_are_served_after_threads_were_killed
    serve_lessons do |env|
      Thread.current.kill if env["QUERY_STRING"] == "kill"
      "here"
    end
    3.times do
      ask("/report/1?kill")
      %w[/report/9 /other].each { |path| assert_equal "here", get(path).body }
    end
  end
end
