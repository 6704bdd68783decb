# frozen_string_literal: true

require_relative "../commands"

# The effects of signals on a server, and the responses that clients get while it stops.
class SignalsTest < Minitest::Test
  include Commands

  # An application that responds with its process number, and at /wait when a line comes through the
  # fifo.
  WAITING = <<~'RUBY'
    run lambda { |env|
      if env["PATH_INFO"] == "/wait"
        File.write("waiting", "")
        File.read("gate")
      end
      [200, {}, [Process.pid.to_s]]
    }
  RUBY
  # An application that streams its response, the end of which follows a line through the fifo.
  STREAMING = <<~'RUBY'
    run lambda { |env|
      body = Enumerator.new do |chunks|
        chunks << "a"
        File.read("gate")
        chunks << "b"
      end
      [200, {}, body]
    }
  RUBY
  KINDS = [[], %w[-w 1]].freeze

  # The open does not wait: a signal that interrupted the reader's open of the FIFO may have ended
  # the reader.
  def open_gate
    eventually do
      gate = File.join(@folder, "gate")
      File.open(gate, File::WRONLY | File::NONBLOCK) { |to| to.write("now\n") }
    rescue Errno::ENXIO
      # There is no reader yet.
      false
    end
  end

  def start_waiting(*arguments, port: %w[-p 0])
    write("config.ru", WAITING)
    File.mkfifo(File.join(@folder, "gate")) unless File.exist?(File.join(@folder, "gate"))
    start(*arguments, "-t", "1", port: port)
  end

  # A client whose request is in the application until the gate opens.
  def waiting_client
    client = connect.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
    eventually { File.exist?(File.join(@folder, "waiting")) }
    File.delete(File.join(@folder, "waiting"))
    client
  end

  def test_workers_are_added_and_ended_one_by_one
    write("config.ru", HELLO)
    pid = start("-w", "1")
    workers = -> { File.read("/proc/#{pid}/task/#{pid}/children").split.map(&:to_i) }
    counts = [["TTIN", 2], ["TTIN", 3], ["TTOU", 2], ["TTOU", 1]]
    counts.each do |name, count|
      Process.kill(name, pid)
      eventually { workers.call.size == count }
      served = []
      eventually { (served |= [get.body.to_i]).size == count }
      assert_empty served - workers.call
    end
    Process.kill("TTOU", pid)
    eventually { File.read(@log).include?("already at the minimum of 1 worker") }
    assert_predicate stop(pid), :success?
  end

  def test_no_signal_of_operators_ends_a_server
    write("config.ru", HELLO)
    lines = { "HUP" => "HUP has no effect: stdout_redirect is not set",
              "PWR" => "thread thruway-" }
    KINDS.each do |arguments|
      pid = start(*arguments)
      served = get.body.to_i
      [pid, served].uniq.each do |receiver|
        File.truncate(@log, 0)
        lines.each do |name, text|
          Process.kill(name, receiver)
          said = name == "PWR" && receiver != served ? "thruway: thread" : text
          eventually { File.read(@log).include?(said) }
        end
      end
      assert_equal served, get.body.to_i, "the same process serves on"
      assert_predicate stop(pid, "QUIT"), :success?
    end
  end

  def test_a_signal_while_the_application_boots_does_no_harm
    # No FIFO: Ruby's open of one ends with EINTR when a signal comes, whatever the server.
    write("config.ru", "File.write('booting', ''); sleep 0.01 until File.exist?('go')\n#{HELLO}")
    KINDS.each do |arguments|
      said = File.join(@folder, "said")
      pid = spawn(BINARY, "serve", ".", "-p", "0", *arguments, chdir: @folder,
                                                               out: said, err: "/dev/null")
      @pids << pid
      eventually { File.exist?(File.join(@folder, "booting")) }
      %w[HUP USR1 USR2].each { |name| Process.kill(name, pid) }
      write("go", "")
      eventually { File.read(said).include?("serving ") }
      assert_predicate stop(pid), :success?
      File.delete(File.join(@folder, "booting"), File.join(@folder, "go"), said)
    end
  end

  def test_hup_to_the_supervisor_opens_the_files_of_all_again
    write("config/puma.rb", "stdout_redirect nil, 'err.log', true")
    write("config.ru", "run ->(_) { warn 'asked'; [200, {}, ['ok']] }")
    pid = start("-w", "1")
    log = File.join(@folder, "err.log")
    File.rename(log, "#{log}.1")
    Process.kill("HUP", pid)
    eventually do
      get
      File.file?(log) && File.read(log).include?("asked")
    end
    assert_predicate stop(pid), :success?
  end

  def test_connections_are_refused_while_the_server_drains
    [[], %w[-w 1], %w[-w 2]].each do |arguments|
      ["tcp://127.0.0.1:0", "unix://#{@folder}/app.sock"].each do |bind|
        pid = start_waiting(*arguments, "-b", bind, port: [])
        client = waiting_client
        Process.kill("TERM", pid)
        eventually { refused? }
        # None of them waits in vain.
        10.times { assert refused? }
        open_gate
        assert_equal 200, client.response.status
        assert_predicate Process.wait2(pid).last, :success?
      end
    end
  end

  def test_the_connections_that_wait_when_the_server_stops_are_answered
    KINDS.each do |arguments|
      pid = start_waiting(*arguments)
      first = waiting_client
      # These are not accepted: the only thread is in the application.
      late = Array.new(3) { connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n") }
      Process.kill("TERM", pid)
      eventually { refused? }
      open_gate
      assert_equal([200] * 4, [first, *late].map { |client| client.response.status })
      assert_predicate Process.wait2(pid).last, :success?
    end
  end

  # Any timeout that could close the connection is longer than the test's patience.
  def test_a_stream_that_ends_while_the_server_drains_ends_its_connection
    write("config.ru", STREAMING)
    write("config/puma.rb", "force_shutdown_after 3600\nworker_shutdown_timeout 3600\n" \
                            "persistent_timeout 3600")
    File.mkfifo(File.join(@folder, "gate"))
    KINDS.each do |arguments|
      pid = start(*arguments)
      client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
      status, fields = client.read_head
      Process.kill("TERM", pid)
      eventually { refused? }
      open_gate
      assert_equal [200, "ab"], [status, client.read_body(fields)]
      assert_predicate Timeout.timeout(PATIENCE_SECONDS) { Process.wait2(pid).last }, :success?
    end
  end

  def test_a_drain_that_runs_out_answers_503
    # The supervisor must not kill a worker that is late with its responses.
    write("config/puma.rb", "force_shutdown_after 0.5\nworker_shutdown_timeout 3600")
    KINDS.each do |arguments|
      pid = start_waiting(*arguments)
      first = waiting_client
      late = Array.new(2) { connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n") }
      half = connect.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
      Process.kill("TERM", pid)
      responses = [first, *late, half].map(&:response)
      assert_equal([503] * 4, responses.map(&:status))
      assert_includes responses.last.body, "the server is stopping"
      assert_predicate Process.wait2(pid).last, :success?
    end
  end

  def test_a_worker_that_is_told_to_stop_alone_closes_nothing_for_the_others
    write("config.ru", HELLO)
    pid = start("-w", "2")
    worker = get.body.to_i
    Process.kill("TERM", worker)
    eventually { File.read(@log).include?("starting another") }
    10.times { assert_equal 200, get.status }
    assert_predicate stop(pid), :success?
  end

  def test_the_processes_have_titles
    write("config.ru", HELLO)
    pid = start("-w", "1")
    title = ->(of) { File.read("/proc/#{of}/cmdline").delete("\0").strip }
    name = File.basename(@folder)
    address = @address.sub("http", "tcp")
    assert_equal "thruway #{Thruway::VERSION} (#{address}) [#{name}]", title[pid]
    assert_equal "thruway: worker 0: #{pid} [#{name}]", title[get.body.to_i]
  end
end
