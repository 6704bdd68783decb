# frozen_string_literal: true

require_relative "../commands"

# A single queue over all workers, whatever each of them is busy with.
class QueueTest < Minitest::Test
  include Commands

  # Answers with its process number. `/compute` and `/wait` last until the file `gate` is there.
  APP = <<~'RUBY'
    gate = File.join(__dir__, "gate")
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/compute" then nil until File.exist?(gate)
      when "/wait" then sleep 0.001 until File.exist?(gate)
      end
      body = env["rack.input"]&.read.to_s
      [200, {}, ["#{Process.pid} #{body.bytesize}"]]
    end)
  RUBY

  def setup
    super
    write("config.ru", APP)
  end

  # Returns connections that are spread over all workers, each with a finished request.
  def connections(count)
    Array.new(count) { connect.tap { |client| worker_of(client.request) } }
  end

  def worker_of(response)
    response.body.to_i
  end

  def say(client, path, body = nil)
    length = body ? "Content-Length: #{body.bytesize}\r\n" : ""
    client.send("#{body ? "POST" : "GET"} #{path} HTTP/1.1\r\nHost: a\r\n#{length}\r\n#{body}")
  end

  def answer(client)
    Timeout.timeout(PATIENCE_SECONDS) { client.response }
  end

  # Sends a request on each connection, and returns the workers that respond.
  def ask_all(clients)
    clients.each { |client| say(client, "/") }
    clients.map { |client| worker_of(answer(client)) }
  end

  def open_gate
    write("gate", "")
  end

  %w[/compute /wait].each do |path|
    define_method(:"test_a_sibling_serves_what_waits_behind_#{path[1..]}") do
      start("-w", "2", "-t", "1")
      first, *others = connections(12)
      say(first, path)
      # In the first round, some requests may be served before the gate.
      rounds = Array.new(4) { ask_all(others) }
      rounds.drop(1).each { |workers| assert_equal 1, workers.uniq.size }
      open_gate
      refute_equal worker_of(answer(others.first.then { |client| say(client, "/") })), 0
      assert_equal "0", answer(first).body.split.last
    end
  end

  def test_every_thread_of_every_worker_serves_before_anything_waits
    start("-w", "2", "-t", "2")
    clients = connections(12)
    waiting = clients.first(3).each { |client| say(client, "/wait") }
    # Each client sends its request after the response to the previous one, whose worker may not be
    # idle yet.
    (clients.drop(3) * 10).each do |client|
      say(client, "/")
      assert_operator worker_of(answer(client)), :>, 0
    end
    open_gate
    assert_equal 2, waiting.map { |client| worker_of(answer(client)) }.uniq.size
  end

  def test_a_connection_that_ends_makes_room_for_the_next_one
    start("-w", "0", "-t", "2", by: %w[prlimit --nofile=64:64])
    last = connect.send("GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    # The other thread responds to as many connections as may be open, and then waits for events.
    waiting = connect until waiting && !served?(waiting)
    open_gate
    assert_operator worker_of(answer(last)), :>, 0
    assert_operator worker_of(answer(waiting)), :>, 0
  end

  def served?(client)
    say(client, "/")
    client.io.wait_readable(1)
  end

  def test_a_body_is_read_while_ruby_computes
    start("-w", "1", "-t", "1")
    busy, sender = connections(2)
    say(busy, "/compute")
    # More than the kernel keeps: the write ends only if the server reads.
    body = "x" * (32 << 20)
    sender.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: #{body.bytesize}\r\n\r\n")
    Timeout.timeout(PATIENCE_SECONDS) { sender.send(body) }
    open_gate
    answer(busy)
    assert_equal body.bytesize, answer(sender).body.split.last.to_i
  end

  def test_what_a_client_takes_late_is_sent_while_ruby_computes
    write("config.ru", APP.sub(/\[200.*\]/, "[200, {}, [body * 999]]"))
    start("-w", "1", "-t", "1")
    late, busy = connections(2)
    body = "y" * 32_000
    say(late, "/", body)
    late.io.wait_readable(PATIENCE_SECONDS)
    say(busy, "/compute")
    assert_equal 999 * body.bytesize, answer(late).body.bytesize
    open_gate
    answer(busy)
  end

  def test_a_request_that_was_moved_loses_no_byte_when_a_worker_is_killed
    start("-w", "2", "-t", "1")
    clients = connections(12)
    say(clients.first, "/wait")
    others = clients.drop(1)
    ask_all(others)
    pid, *rest = ask_all(others).uniq
    assert_empty rest
    Process.kill("KILL", pid)
    open_gate
    # The waiting worker keeps its client. The clients of the dead worker are disconnected.
    assert_operator worker_of(answer(clients.first)), :>, 0
    others.each { |client| assert_predicate client, :closed? }
    assert_operator worker_of(get), :>, 0
  end
end
