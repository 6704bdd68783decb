# frozen_string_literal: true

require_relative "../commands"
require_relative "../crowd"

# Many requests wait while workers are killed, stopped and replaced, and while clients leave.
# `cargo x prove waits --cases 5000` runs the whole test. Otherwise, only the checks of its clients
# are tested.
class ChaosTest < Minitest::Test
  include Commands

  WAITING = ENV["THRUWAY_CASES"]&.to_i
  SEED = Integer(ENV.fetch("THRUWAY_SEED", "1"))
  ROUND_SECONDS = 4
  # The events that happen while requests wait, each several times.
  HARMS = (%i[kill kill pause phased hot refork replace] * 2).freeze
  # The growth of the workers' memory that is allowed when the number of requests doubles.
  GROWTH_MAX = 1.25

  # The faults that a crowd with one request finds in the response to its first request.
  def verdict(text, killed: nil, ends: true)
    crowd = Crowd.new(1, 0)
    crowd.expect_death(killed) if killed
    client = Crowd::Client.new(crowd)
    here, there = UNIXSocket.pair
    crowd.define_singleton_method(:connect) { here }
    client.ask
    client.send
    there.write(text)
    there.close_write if ends
    client.receive
    client.receive if client.waits? && ends
    crowd.counts.keys
  ensure
    [here, there].each { |socket| socket&.close }
  end

  def chunks(*texts)
    body = texts.map { |text| "#{text.bytesize.to_s(16)}\r\n#{text}\r\n" }.join
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n#{body}"
  end

  def whole(text)
    "HTTP/1.1 200 OK\r\ncontent-length: #{text.bytesize}\r\n\r\n#{text}"
  end

  def test_clients_tell_right_responses_from_wrong_and_lost_ones
    right = "#{"1 " * 50}end"
    assert_equal %i[right], verdict(whole("77 #{right}"))
    assert_equal %i[right], verdict("#{chunks("77 ", right)}0\r\n\r\n")
    assert_equal %i[wrong], verdict(whole("77 #{right.sub("1", "2")}"))
    assert_equal %i[wrong], verdict("#{whole("77 #{right}")}HTTP/1.1")
    assert_equal %i[wrong], verdict("#{chunks("77 ", right)}0\r\n\r\nHTTP")
    assert_equal %i[wrong], verdict("HTTP/1.1 503 Service Unavailable\r\n\r\n")
    assert_equal %i[lost], verdict("")
    assert_equal %i[lost], verdict(chunks("77 ", right))
    assert_equal %i[lost], verdict(chunks("77 "), killed: 78)
    assert_equal %i[killed], verdict(chunks("77 "), killed: 77)
    assert_empty verdict(chunks("77 "), ends: false)
  end

  if WAITING
    def test_requests_in_fibers
      survive(WAITING, "--fibers", WAITING.to_s)
    end

    def test_requests_in_waiting_threads
      survive([WAITING, 1000].min, "--waiting-threads", "500")
    end
  end

  private

  def survive(clients, *mode)
    Process.setrlimit(:NOFILE, Process.getrlimit(:NOFILE).last)
    write("config.ru", Crowd::APPLICATION)
    @server = start("-w", "2", "-t", "5", "-e", "production", *mode)
    crowd = Crowd.new(@address[/\d+\z/].to_i, 2)
    crowd.run(ROUND_SECONDS)
    crowd.close
    fresh = most_left
    crowd = Crowd.new(@address[/\d+\z/].to_i, clients, seed: SEED)
    harm(crowd)
    memory = Array.new(2) do
      crowd.run(2 * ROUND_SECONDS)
      memory_kb
    end
    crowd.close
    puts "#{mode.join(" ")}: #{crowd.counts.sort.to_h}, memory of workers in KiB: #{memory}"
    assert_empty crowd.faults
    assert_operator crowd.counts[:right], :>, clients
    assert_operator memory[1], :<=, memory[0] * GROWTH_MAX
    # The template of a refork is among the processes, and has fewer.
    eventually { most_left.zip(fresh).all? { |now, before| now <= before } }
    assert_predicate stop(@server), :success?
  end

  def harm(crowd)
    harms = HARMS.shuffle(random: Random.new(SEED)).each
    thread = Thread.new do
      loop do
        sleep ROUND_SECONDS
        send(harms.next, crowd)
      end
    end
    crowd.run(ROUND_SECONDS * (HARMS.size + 2))
    thread.join
  end

  def kill(crowd)
    worker = workers.sample or return
    crowd.expect_death(worker)
    Process.kill(:KILL, worker)
  end

  def pause(_)
    worker = workers.sample
    Process.kill(:STOP, worker)
    sleep ROUND_SECONDS / 2
    Process.kill(:CONT, worker)
  end

  def phased(_) = Process.kill(:USR1, @server)

  def hot(_) = Process.kill(:USR2, @server)

  def refork(_) = Process.kill(:URG, @server)

  def replace(_) = Process.kill(:USR1, workers.sample)

  def workers
    File.read("/proc/#{@server}/task/#{@server}/children").split.map(&:to_i)
  end

  # The largest numbers of threads and of descriptors of any worker.
  def most_left
    workers.map do |worker|
      links = Dir.children("/proc/#{worker}/fd").map { |fd| "/proc/#{worker}/fd/#{fd}" }
      # Each thread that examines another thread has a file of /proc open.
      open = links.reject { |link| File.readlink(link).start_with?("/proc") }
      [Dir.children("/proc/#{worker}/task").size, open.size]
    end.transpose.map(&:max)
  rescue Errno::ENOENT
    retry
  end

  def memory_kb
    workers.sum { |worker| File.read("/proc/#{worker}/status")[/^VmRSS:\s+(\d+)/, 1].to_i }
  end
end
