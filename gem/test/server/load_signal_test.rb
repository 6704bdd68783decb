# frozen_string_literal: true

require_relative "../commands"
require_relative "../ports"

require "json"
require "thruway/support/load_signal"

# The load that a server reports.
class LoadSignalTest < Minitest::Test
  include Commands
  include Ports

  GATED = <<~'RUBY'
    run ->(env) {
      sleep 0.01 until File.exist?("go") if env["PATH_INFO"] == "/wait"
      [200, {}, [Process.pid.to_s]]
    }
  RUBY

  def worker(busy, waiting = 0, **others)
    { "booted" => true, "draining" => false, "threads" => 4, "busy_threads" => busy,
      "waiting" => waiting }.merge(others.transform_keys(&:to_s))
  end

  def signal_after(workers)
    Thruway::LoadSignal.new.tap { |signal| 100.times { signal.add("workers" => workers) } }
  end

  def test_it_is_the_part_of_the_threads_that_are_busy
    assert_in_delta 0.0, signal_after([worker(0), worker(0)]).utilization, 0.01
    assert_in_delta 0.5, signal_after([worker(4), worker(0)]).utilization, 0.01
    assert_in_delta 1.0, signal_after([worker(4, 9), worker(4)]).utilization, 0.01
    half = signal_after([worker(2), worker(4, draining: true), worker(4, booted: false)])
    assert_equal 50, half.weight_percent
    assert_equal 'JSON {"application_utilization":0.50}', half.report
    assert_equal 1, signal_after([]).weight_percent, "no worker serves"
  end

  def test_one_moment_is_not_the_whole_truth
    signal = Thruway::LoadSignal.new
    signal.add("workers" => [worker(4)])
    assert_operator signal.utilization, :<, 0.2
  end

  def percent(port) = TCPSocket.open("127.0.0.1", port, &:gets).to_i

  def test_an_agent_check_and_responses_tell_it
    [%w[-w 2], []].each do |arguments|
      port = free_port
      write("config.ru", GATED)
      write("config/puma.rb", "agent_check 'tcp://127.0.0.1:#{port}'\nload_report\n")
      FileUtils.rm_f(File.join(@folder, "go"))
      pid = start(*arguments, "-t", "2")
      assert_match(/\AJSON {"application_utilization":0\.\d\d}\z/, get["endpoint-load-metrics"])
      eventually { percent(port) == 100 }
      waiting = Array.new(6) { connect.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n") }
      eventually { percent(port) < 50 }
      write("go", "")
      waiting.each { |client| assert_equal 200, client.response.status }
      eventually { percent(port) > 60 }
      assert_predicate stop(pid), :success?
    end
  end

  def test_a_server_that_stops_wants_nothing_more
    port = free_port
    write("config.ru", GATED)
    write("config/puma.rb", "agent_check 'tcp://127.0.0.1:#{port}'\ndrain_delay 600\n")
    pid = start("-w", "1")
    Process.kill("TERM", pid)
    eventually { percent(port).zero? }
    assert_equal 200, get.status
    assert_predicate stop(pid), :success?
  end
end
