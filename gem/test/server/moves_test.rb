# frozen_string_literal: true

require "io/wait"

require_relative "../commands"

# Connections move between workers, even when the workers die.
class MovesTest < Minitest::Test
  include Commands

  # Responds with the process number and the request's body. A body of `hold` makes the file `held`,
  # and computes until the file `gate` exists.
  ECHO = <<~'RUBY'
    gate = File.join(__dir__, "gate")
    run(lambda do |env|
      body = env["rack.input"].read
      File.write("held", "") if body == "hold"
      nil until body != "hold" || File.exist?(gate)
      # Long enough that a request which waits is worth a move.
      sleep 0.002 if body.start_with?("slow")
      [200, {}, ["#{Process.pid} #{body}"]]
    end)
  RUBY

  CLIENTS = 40
  REQUESTS = 60

  def setup
    super
    write("config.ru", ECHO)
  end

  def post(body)
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}"
  end

  # Sends a request until there is a response: a worker's death may take the connection along.
  def ask(client, body)
    client ||= Client.new(TCPSocket.new("127.0.0.1", @address[/\d+\z/].to_i))
    worker, *rest = client.send(post(body)).response.body.split(" ", 2)
    assert_equal [body], rest
    [client, worker.to_i]
  rescue EOFError, Errno::ECONNRESET, Errno::EPIPE
    client.io.close
    ask(nil, body)
  end

  # Sends a client's requests, and further ones during the test. Returns the number of times that
  # the connection changed its worker.
  def run_client(number)
    client = last = nil
    moves = 0
    (0..).each do |turn|
      break if turn >= REQUESTS && @is_over

      before = client
      client, worker = ask(client, "slow #{number} #{turn}")
      moves += 1 if before.equal?(client) && worker != last
      last = worker
      @seen[worker] = true
    end
    moves
  ensure
    client&.io&.close
  end

  def test_a_killed_worker_takes_no_byte_of_clients_that_move
    start("-w", "3", "-t", "1")
    @seen = {}
    clients = Array.new(CLIENTS) { |number| Thread.new { run_client(number) } }
    4.times do |killed|
      eventually { (@seen.keys - (@dead ||= [])).size >= 2 }
      pid = (@seen.keys - @dead).last
      Process.kill("KILL", pid)
      @dead << pid
      eventually { File.read(@log).scan("signal KILL").size > killed }
    end
    @is_over = true
    moves = Timeout.timeout(120) { clients.sum(&:value) }
    assert_operator moves, :>, 0
  end

  def test_thousands_of_slow_clients_lose_no_byte_when_they_move
    count = 5_000
    most = Process.getrlimit(:NOFILE).last
    skip "the limit of descriptors is #{most}" if most < 2 * count
    Process.setrlimit(:NOFILE, most)
    start("-w", "2", "-t", "1")
    clients = Array.new(count) { connect }
    requests = clients.each_index.map { |number| post("number #{number}") }
    worker = hold_a_worker
    # Each sends byte by byte at first, and all of them at the same time.
    send_slowly(clients, requests)
    answers = Timeout.timeout(120) { clients.map { |client| client.response.body } }
    workers, bodies = answers.map { |answer| answer.split(" ", 2) }.transpose
    assert_equal clients.each_index.map { |number| "number #{number}" }, bodies
    refute_includes workers.map(&:to_i), worker
    write("gate", "")
    assert_equal worker, @held.response.body.to_i
  end

  def test_a_low_limit_of_descriptors_costs_no_client_that_moves
    start("-w", "2", "-t", "1", by: %w[prlimit --nofile=128:128])
    clients = Array.new(240) { |number| Thread.new { ask_alone("slow #{number}") } }
    assert_equal [true], Timeout.timeout(120) { clients.map(&:value).uniq }
    refute_includes File.read(@log), "take over"
  end

  # Sends the only request of a client. Returns whether its response arrives before the end.
  def ask_alone(body)
    client = Client.new(TCPSocket.new("127.0.0.1", @address[/\d+\z/].to_i))
    client.send(post(body)).response.body.end_with?(" #{body}")
  rescue EOFError, Errno::ECONNRESET, Errno::EPIPE
    false
  ensure
    client&.io&.close
  end

  # A container takes all of these away by default, and more may be forbidden.
  def test_connections_move_without_any_right
    start("-w", "2", "-t", "1", by: %w[setpriv --no-new-privs --bounding-set=-all --inh-caps=-all])
    worker = hold_a_worker
    clients = Array.new(6) { connect.send(post("moved")) }
    answers = Timeout.timeout(PATIENCE_SECONDS) { clients.map { |client| client.response.body } }
    answers.each { |answer| assert_match(/\A(?!#{worker} )\d+ moved\z/, answer) }
    write("gate", "")
    assert_equal worker, @held.response.body.to_i
  end

  def test_a_stopped_worker_gets_one_connection_at_most_and_serves_it_once_it_goes_on
    start("-w", "2", "-t", "1")
    stopped = connect.send(post("which")).response.body.to_i
    suspend(stopped)
    clients = Array.new(10) do
      client = connect.send(post("now"))
      client.io.wait_readable(1)
      client
    end
    late = nil
    eventually { (late = clients.reject { |client| client.io.wait_readable(0) }).size <= 1 }
    answers = (clients - late).map { |client| client.response.body.to_i }
    assert_equal 1, (answers - [stopped]).uniq.size
    refute_includes answers, stopped
    Process.kill("CONT", stopped)
    Timeout.timeout(PATIENCE_SECONDS) { late.each { |client| client.response } }
  ensure
    Process.kill("CONT", stopped) if stopped
  end

  def test_chunks_and_what_follows_them_move_too
    start("-w", "2", "-t", "1")
    clients = Array.new(6) { connect }
    worker = hold_a_worker
    chunks = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" \
             "2\r\nch\r\n4\r\nunks\r\n0\r\n\r\n"
    clients.each { |client| client.send(chunks + post("next")) }
    answers = Timeout.timeout(PATIENCE_SECONDS) do
      clients.map { |client| Array.new(2) { client.response.body } }
    end
    answers.each do |chunked, following|
      assert_match(/\A(?!#{worker} )\d+ chunks\z/, chunked)
      assert_match(/\A(?!#{worker} )\d+ next\z/, following)
    end
    write("gate", "")
  end

  # Keeps a worker in Ruby code until `gate` exists. Returns the worker's process number.
  def hold_a_worker
    @held = connect
    worker = @held.send(post("which")).response.body.to_i
    @held.send(post("hold"))
    eventually { File.exist?("#{@folder}/held") }
    worker
  end

  def send_slowly(clients, requests)
    3.times { |at| clients.zip(requests) { |client, request| client.send(request[at]) } }
    clients.zip(requests) { |client, request| client.send(request[3..]) }
  end
end
