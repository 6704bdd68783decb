# frozen_string_literal: true

require_relative "../commands"

# Descriptors 0 to 2 are never free: the next socket would get the number of a log.
class StandardStreamsTest < Minitest::Test
  include Commands

  KINDS = [[], %w[-w 1]].freeze

  # An application that responds with its process number and the time of its boot.
  DATED = <<~'RUBY'
    booted = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    run ->(_) { [200, {}, ["#{Process.pid} #{booted}"]] }
  RUBY

  LOGGING = "log_requests\nstdout_redirect 'out/log', 'err/log', true\n"

  # Obstacles that keep a log in a folder from being opened, each with its removal.
  OBSTACLES = {
    "a folder" => [->(dir) { Dir.mkdir("#{dir}/log") }, ->(dir) { Dir.rmdir("#{dir}/log") }],
    "a link to itself" => [->(dir) { File.symlink("log", "#{dir}/log") },
                           ->(dir) { File.delete("#{dir}/log") }],
    "a missing folder" => [->(dir) { File.rename(dir, "#{dir}.old") }, ->(dir) { Dir.mkdir(dir) }],
    "a folder that is a file" => [->(dir) { File.rename(dir, "#{dir}.old") && File.write(dir, "") },
                                  ->(dir) { File.delete(dir) && Dir.mkdir(dir) }]
  }.freeze

  def path(name) = File.join(@folder, name)

  def folders = %w[out err].map { |name| path(name) }

  def logs = folders.map { |folder| "#{folder}/log" }

  # Returns the targets of a process's standard streams.
  def streams(pid) = (0..2).map { |number| File.readlink("/proc/#{pid}/fd/#{number}") }

  def served = get.body.split.first.to_i

  # Starts a server that may have no stdout for its address, and waits until the server is ready.
  def start_at_socket(*arguments, **streams)
    write("config.ru", DATED) unless File.exist?(path("config.ru"))
    @address = "unix://#{path("app.sock")}"
    FileUtils.mkdir_p(folders)
    pid = spawn(BINARY, "serve", @folder, "-b", @address, *arguments, **streams)
    @pids << pid
    eventually { up? }
    pid
  end

  def up?
    get.status == 200
  rescue SystemCallError, EOFError, NoMethodError
    false
  end

  # Later connections have the lowest free descriptors.
  def assert_whole_responses
    Array.new(4) { connect }.each do |client|
      assert_match(/\A\d+ \d+\z/, client.request.body)
      sent = client.io.read_nonblock(1, exception: false)
      assert_equal :wait_readable, sent, "nothing follows a response"
    end
  end

  def lead?(processes, *files)
    processes.all? { |process| streams(process)[1..] == files }
  rescue Errno::ENOENT
    # The descriptor is being reopened at this moment.
    false
  end

  def test_a_log_that_cannot_be_opened_leaves_the_old_one_in_its_place
    write("config/puma.rb", LOGGING)
    KINDS.product(OBSTACLES.to_a).each do |arguments, (name, (hinder, cure))|
      pid = start_at_socket(*arguments)
      processes = [pid, served].uniq
      said = File.open(logs.last)
      logs.each { |log| File.rename(log, "#{log}.1") }
      folders.each(&hinder)
      Process.kill("HUP", pid)
      lines = +""
      eventually { (lines << said.read).scan("cannot redirect").size == 2 * processes.size }
      assert_whole_responses
      kept = streams(pid)[1..]
      assert(kept.all? { |file| file.end_with?("/log.1") }, name)
      assert lead?(processes, *kept), name
      folders.each(&cure)
      Process.kill("HUP", pid)
      eventually { lead?(processes, *logs) }
      assert_whole_responses
      assert_predicate stop(pid), :success?
      folders.each { |folder| FileUtils.rm_rf([folder, "#{folder}.old"]) }
    ensure
      said&.close
    end
  end

  def test_a_log_on_a_full_disk_can_be_left
    ["", "mutate_stdout_and_stderr_to_sync_on_write false"].product(KINDS).each do |word, arguments|
      write("config/puma.rb", "#{LOGGING}#{word}\n")
      pid = start_at_socket(*arguments)
      processes = [pid, served].uniq
      logs.each { |log| File.delete(log) && File.symlink("/dev/full", log) }
      Process.kill("HUP", pid)
      eventually { lead?(processes, "/dev/full", "/dev/full") }
      assert_whole_responses
      logs.each { |log| File.delete(log) }
      Process.kill("HUP", pid)
      eventually { lead?(processes, *logs) }
      assert_whole_responses
      assert_predicate stop(pid), :success?
      FileUtils.rm_rf(folders)
    end
  end

  # `IO#reopen` would raise IOError in a thread of the application that writes to the old log.
  def test_a_thread_that_writes_while_a_log_is_reopened_is_not_interrupted
    script = <<~'RUBY'
      require "thruway"
      require "thruway/support/redirection"
      require "io/wait"
      reader, writer = IO.pipe
      STDOUT.reopen(writer)
      writer.close
      STDOUT.sync = true
      thread = Thread.new { STDOUT.write("x" * (1 << 20)) }
      Thread.pass until thread.stop? && reader.wait_readable(0)
      settings = Struct.new(:syncs_output, :redirect).new(true, { stdout: "log", append: true })
      Thruway::Redirection.new(settings).begin
      drained = reader.read.size
      warn thread.value, drained + File.size("log")
    RUBY
    root = File.expand_path("../../..", __dir__)
    command = ["ruby", "-I#{root}/target/debug/gem", "-I#{root}/gem/lib", "-e", script]
    out, said, status = Open3.capture3(*command, chdir: @folder)
    assert_predicate status, :success?, said
    assert_equal ["", "#{1 << 20}\n" * 2], [out, said]
  end

  # The application closes a stream by a `reopen` that fails, and the next connection arrives.
  def test_a_stream_that_the_application_loses_is_no_place_for_a_connection
    { "at boot" => "lose.call", "in a request" => "" }.each do |name, at_boot|
      write("config.ru", <<~RUBY)
        lose = lambda do
          $stdout.reopen("nowhere/log", "a")
        rescue SystemCallError
          nil
        end
        #{at_boot}
        run ->(env) {
          lose.call if env["PATH_INFO"] == "/lose"
          [200, {}, ["\#{Process.pid} 0"]]
        }
      RUBY
      KINDS.each do |arguments|
        pid = start_at_socket(*arguments)
        get("/lose")
        assert_whole_responses
        assert_equal "/dev/null", streams(served)[1], name
        assert_predicate stop(pid), :success?
      end
    end
  end

  # This applies to all processes, and to those of the next server.
  def test_streams_that_are_closed_at_the_start_lead_to_nothing
    KINDS.product([[0], [1], [2], [0, 1, 2]]).each do |arguments, closed|
      pid = start_at_socket(*arguments, **streams_without(closed))
      before, first = get.body.split.then { |one, boot| [one.to_i, boot] }
      assert_nothing_at(closed, pid, before)
      Process.kill("USR2", pid)
      # A worker of the server before may serve for a moment more, and then it is gone.
      process = eventually { get.body.split.then { |one, boot| one.to_i if boot != first } }
      eventually { before == pid || !File.directory?("/proc/#{before}") }
      assert_nothing_at(closed, pid, process)
      assert_whole_responses
      assert_predicate stop(pid), :success?
    end
  end

  def test_streams_of_a_template_lead_to_nothing
    write("config/puma.rb", "workers 1\n")
    pid = start_at_socket(**streams_without([0, 1, 2]))
    first = served
    Process.kill("URG", pid)
    eventually { File.read("/proc/#{first}/cmdline").include?("template") }
    eventually { served != first }
    assert_nothing_at([0, 1, 2], pid, first, served)
    assert_predicate stop(pid), :success?
  end

  def streams_without(closed)
    (0..2).to_h { |number| [number, closed.include?(number) ? :close : [path("said"), "a+"]] }
  end

  def assert_nothing_at(numbers, *processes)
    processes.each do |process|
      assert_equal ["/dev/null"] * numbers.size, streams(process).values_at(*numbers)
    end
  end
end
