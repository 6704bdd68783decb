# frozen_string_literal: true

require "io/nonblock"
require "json"
require "monitor"
require "net/http"
require "open3"
require "tempfile"
require "tmpdir"

require_relative "../serving"

class FibersTest < Minitest::Test
  include Serving

  # Serves in one thread, unless a test sets another number: a request that blocks the thread delays
  # all others.
  def serve(app = nil, **options, &block)
    super(app, **{ threads: 1, fibers: 64 }.merge(options), &block)
  end

  def ask(path)
    connect.send("GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n")
  end

  # Requests that all have to be in the application before any of them is answered.
  def assert_overlap(count = 8, **options)
    inside = 0
    serve(**options) do |env|
      inside += 1
      yield env until inside >= count
      [200, {}, ["met"]]
    end
    clients = Array.new(count) { ask("/") }
    clients.each { |client| assert_equal "met", client.response.body }
  end

  def test_requests_that_wait_leave_the_thread_to_others
    gate = Queue.new
    serve do |env|
      gate.pop if env["PATH_INFO"] == "/wait"
      [200, {}, [env["PATH_INFO"]]]
    end
    clients = Array.new(50) { ask("/wait") }
    20.times { assert_equal "/go", get("/go").body }
    50.times { gate << true }
    clients.each { |client| assert_equal "/wait", client.response.body }
  end

  def test_sleeps_overlap
    assert_overlap { sleep 0.005 }
  end

  def test_waits_for_sockets_and_pipes_overlap
    reader, writer = IO.pipe
    serve do |env|
      case env["PATH_INFO"]
      when "/read" then [200, {}, [reader.readpartial(9)]]
      else
        writer << "from another"
        [200, {}, ["written"]]
      end
    end
    client = ask("/read")
    assert_equal "written", get("/write").body
    assert_equal "from ano", client.response.body[0, 8]
  end

  def test_requests_of_other_threads_wake_fibers
    box = Queue.new
    serve { [200, {}, [box.pop]] }
    clients = Array.new(5) { ask("/") }
    Array.new(5) { |n| Thread.new { box << n.to_s } }.each(&:join)
    assert_equal %w[0 1 2 3 4], clients.map { |client| client.response.body }.sort
  end

  def test_locks_belong_to_fibers
    mutex, monitor, free = Mutex.new, Monitor.new, ConditionVariable.new
    held, waited = 0, 0
    serve do |env|
      if env["PATH_INFO"] == "/signal"
        mutex.synchronize { free.signal }
      else
        mutex.synchronize { (waited += 1) && free.wait(mutex) }
        monitor.synchronize do
          held += 1
          sleep 0.002
          raise "two at once" unless held == 1

          held -= 1
        end
      end
      [200, {}, ["held"]]
    end
    clients = Array.new(4) { ask("/") }
    eventually { waited == 4 }
    4.times { assert_equal "held", get("/signal").body }
    clients.each { |client| assert_equal "held", client.response.body }
  end

  def test_children_are_waited_for_beside_other_requests
    serve do |env|
      next [200, {}, ["go"]] if env["PATH_INFO"] == "/go"

      id = Process.spawn("read line; exit 3", in: (pipe = IO.pipe)[0])
      Thread.new { get("/go") && pipe[1].puts("end") }
      _, status = Process.wait2(id)
      out = `echo back; exit 4`
      [200, {}, [[status.exitstatus, out.chomp, $?.exitstatus].join(" ")]]
    end
    assert_equal "3 back 4", get.body
  end

  def test_a_request_to_the_server_itself_does_not_block_it
    serve do |env|
      next [200, {}, ["inner"]] if env["PATH_INFO"] == "/inner"

      uri = URI("http://localhost:#{@address[/\d+\z/]}/inner")
      [200, {}, [Net::HTTP.get(uri)]]
    end
    assert_equal "inner", get.body
  end

  def test_timeouts_end_one_request
    serve do |env|
      if env["PATH_INFO"] == "/slow"
        Timeout.timeout(0.02) { Timeout.timeout(60) { sleep } }
      end
      Timeout.timeout(60) { sleep 0.001 }
      [200, {}, ["in time"]]
    rescue Timeout::Error => e
      [504, {}, [e.message]]
    end
    other = ask("/")
    late = get("/slow")
    assert_equal [504, "execution expired"], [late.status, late.body]
    assert_equal "in time", other.response.body
  end

  # Before Ruby 3.2, a select blocks its thread.
  def test_select_waits_beside_other_requests
    readers = Array.new(2) { IO.pipe }
    serve(threads: 2) do |env|
      if env["PATH_INFO"] == "/write"
        readers[1][1] << "x"
        next [200, {}, []]
      end
      none = IO.select([readers[0][0]], nil, nil, 0.001)
      ready, = IO.select(readers.map(&:first), nil, nil, 60)
      [200, {}, [[none, ready == [readers[1][0]]].inspect]]
    end
    client = ask("/")
    get("/write")
    assert_equal "[nil, true]", client.response.body
  end

  # Standard input and inherited pipes are such descriptors.
  def test_descriptors_that_block_do_not_block_the_thread
    pipes = Array.new(4) { IO.pipe }
    pipes.flatten.each { |io| io.nonblock = false }
    readers, writers = pipes.transpose
    serve do |env|
      said = case env["PATH_INFO"]
             when "/gets" then readers[0].gets
             when "/partial" then readers[1].readpartial(9)
             when "/system" then readers[2].sysread(9)
             when "/write" then writers[3].write("x" * 300_000).to_s
             else
               writers.first(3).each { |writer| writer << "line\n" }
               readers[3].read(300_000)
             end
      [200, {}, [said]]
    end
    clients = %w[/gets /partial /system /write].map { |path| ask(path) }
    assert_equal 300_000, get("/go").body.count("x")
    said = clients.map { |client| client.response.body }
    assert_equal ["line\n", "line\n", "line\n", "300000"], said
    refute_predicate readers[0], :nonblock?
  end

  def test_a_write_that_blocks_is_complete_and_a_read_without_a_wait_does_not_wait
    reader, writer = IO.pipe
    other, other_writer = IO.pipe
    writer.nonblock = false
    other.nonblock = false
    serve do |env|
      next [200, {}, [reader.read(100_000)]] if env["PATH_INFO"] == "/read"

      written = writer.syswrite("x" * 100_000)
      [200, {}, [[written, other.read_nonblock(9, exception: false)].inspect]]
    end
    client = ask("/")
    assert_equal 100_000, get("/read").body.bytesize
    assert_equal "[100000, :wait_readable]", client.response.body
    # Without a reference, a collection would close the other end.
    other_writer.close
  end

  def test_positions_in_files_are_kept
    file = Tempfile.new("fibers")
    serve do
      file.pwrite("0123456789" * 1000, 5)
      file.seek(10)
      file.write("abc")
      file.flush
      [200, {}, [[file.pread(4, 9), file.pread(2, 10_003), file.size].inspect]]
    end
    assert_equal '["4abc", "89", 10005]', get.body
  ensure
    file&.close!
  end

  def test_an_exception_is_raised_in_a_fiber_that_waits
    pipe = IO.pipe
    serve do
      said = []
      waits = [-> { sleep }, -> { Queue.new.pop }, -> { pipe[0].read }]
      fibers = waits.map do |wait|
        Fiber.schedule do
          wait.call
        rescue IndexError => e
          said << e.message
          sleep 0.001
          said << "after"
        end
      end
      fibers.each_with_index { |fiber, index| fiber.raise(IndexError, index.to_s) }
      sleep 0.001 until said.size == 6
      [200, {}, [said.sort.inspect]]
    end
    2.times { assert_equal %w[0 1 2 after after after].inspect, get.body }
  end

  def test_the_timeout_of_an_io_ends_its_waits
    skip "since Ruby 3.2" unless IO.method_defined?(:timeout=)

    pipe = IO.pipe
    pipe[0].timeout = 0.01
    waits = [-> { pipe[0].read(1) }, -> { pipe[0].gets }, -> { pipe[0].wait_readable.inspect }]
    serve do
      said = waits.map do |wait|
        wait.call
      rescue IO::TimeoutError => e
        e.class.name
      end
      [200, {}, [said.join(" ")]]
    end
    assert_equal "IO::TimeoutError IO::TimeoutError nil", get.body
  end

  # Since Ruby 4.0, IO#close calls the hook for the fibers of other threads.
  def test_a_blocking_fiber_is_interrupted_with_its_thread
    fibers, pipe = Queue.new, IO.pipe
    serve do
      blocking = Fiber.new(blocking: true) do
        fibers << [Fiber.scheduler, Fiber.current]
        pipe[0].read
      rescue IndexError => e
        e.message
      end
      [200, {}, [blocking.resume]]
    end
    client = ask("/")
    scheduler, blocking = fibers.pop
    assert scheduler.fiber_interrupt(blocking, IndexError.new("interrupted"))
    assert_equal "interrupted", client.response.body
  end

  # Ruby calls the hook since 3.4. The operation works on memory of the fiber that waits for it.
  def test_an_interrupted_fiber_goes_on_once_its_operation_has_ended
    serve do
      begun, said = Queue.new, Queue.new
      has_ended = false
      operation = lambda do
        begun << true
        sleep
      ensure
        9.times { Thread.pass }
        has_ended = true
      end
      fiber = Fiber.schedule do
        Fiber.scheduler.blocking_operation_wait(operation)
      rescue IndexError => e
        said << [e.message, has_ended]
      end
      begun.pop
      fiber.raise(IndexError, "interrupted")
      [200, {}, [said.pop.inspect]]
    end
    assert_equal '["interrupted", true]', get.body
  end

  # The async gem does this: some versions set their scheduler, and others use the existing one.
  def test_another_scheduler_is_refused_and_a_thread_may_have_it
    serve do |env|
      case env["PATH_INFO"]
      when "/set" then Fiber.set_scheduler(nil)
      when "/task" then Fiber.scheduler.add_child(Object.new)
      when "/thread" then Thread.new { Fiber.set_scheduler(nil) }.join
      when "/wait" then sleep 0.001 until @is_open
      when "/open" then @is_open = true
      end
      [200, {}, ["done"]]
    rescue RuntimeError => e
      [200, {}, [e.message]]
    end
    %w[/set /task].each { |path| assert_match(/of its own; run it in a thread/, get(path).body) }
    assert_equal "done", get("/thread").body
    waiting = ask("/wait")
    assert_equal "done", get("/open").body
    assert_equal "done", waiting.response.body
  end

  # Each child waits for a line that a later request writes.
  def test_children_of_every_kind_wait_beside_other_requests
    kinds = {
      "popen" => ->(command) { IO.popen(command, &:read) },
      "open3" => ->(command) { Open3.capture2(command)[0] },
      "backticks" => ->(command) { `#{command}` },
      "system" => ->(command) { "#{system("test $(#{command}) = line")}\n" },
      "join" => ->(command) { Thread.new { `#{command}` }.value },
      "detach" => ->(command) {
                    Process.detach(spawn(command, out: File::NULL)).value.exitstatus.to_s
                  },
    }
    Dir.mktmpdir do |folder|
      paths = kinds.keys.to_h { |kind| [kind, File.join(folder, kind)] }
      fifos = paths.each_value.map { |path| File.mkfifo(path) && File.open(path, "r+") }
      serve do |env|
        kind = env["PATH_INFO"].delete("/")
        wait = kinds[kind]
        next [200, {}, [wait.call("read l < '#{paths[kind]}'; echo $l")]] if wait

        fifos.each { |fifo| fifo.syswrite("line\n") }
        [200, {}, ["written"]]
      end
      clients = kinds.keys.map { |kind| ask("/#{kind}") }
      assert_equal "written", get("/go").body
      said = clients.map { |client| client.response.body }
      assert_equal %W[line\n line\n line\n true\n line\n 0], said
    end
  end

  def test_scheduled_fibers_run_beside_their_request
    serve do
      words = Queue.new
      # Each fiber continues when the next one is over.
      gates = Array.new(4) { Queue.new }
      3.times do |n|
        Fiber.schedule do
          gates[n + 1].pop
          sleep 0.001
          words << n
          gates[n] << true
        end
      end
      Fiber.schedule { raise "only this fiber ends" }
      gates[3] << true
      [200, {}, [Array.new(3) { words.pop }.join]]
    end
    said = stderr_of { assert_equal "210", get.body }
    assert_includes said, "only this fiber ends"
  end

  def test_fibers_of_the_application_wait_as_parts_of_their_request
    serve do
      numbers = Enumerator.new { |all| 3.times { |n| sleep(0.001) && all << n } }
      own = Fiber.new { sleep(0.001) && [Fiber.yield(:one), :two].last }
      [200, {}, [[numbers.next, numbers.next, own.resume, own.resume].inspect]]
    end
    assert_equal "[0, 1, :one, :two]", get.body
  end

  def test_errors_of_one_request_do_not_touch_others
    serve do |env|
      sleep 0.001
      case env["PATH_INFO"]
      when "/raise" then raise "broken"
      when "/throw" then throw :nowhere
      when "/yield" then Fiber.yield
      when "/exit" then exit
      else [200, {}, ["fine"]]
      end
    end
    stderr_of do
      %w[/raise /throw /yield /exit].each do |path|
        client = ask("/")
        assert_equal 500, get(path).status, path
        assert_equal "fine", client.response.body
      end
    end
  end

  def test_what_a_request_leaves_in_its_fiber_is_not_seen_by_the_next
    serve do
      seen = [Thread.current[:user], Fiber.current.instance_variable_get(:@user)]
      seen << Fiber[:user] if Fiber.respond_to?(:[])
      Thread.current[:user] = Fiber.current.instance_variable_set(:@user, 1)
      Fiber[:user] = 1 if Fiber.respond_to?(:[])
      [200, {}, [seen.compact.inspect]]
    end
    client = connect
    3.times { assert_equal "[]", client.request.body }
  end

  def test_a_finished_fiber_serves_the_next_request
    serve { [200, {}, [Fiber.current.object_id.to_s]] }
    client = connect
    assert_equal 1, Array.new(5) { client.request.body }.uniq.size
  end

  # Requests that have arrived together. Each fails or leaves something behind as its path says.
  def test_requests_in_a_row_run_in_one_fiber_without_a_switch
    switches = 0
    counter = TracePoint.new(:fiber_switch) { switches += 1 }
    serve do |env|
      counter.enable unless counter.enabled?
      seen = [Fiber.current.object_id, switches, Thread.current[:left]].join(" ")
      case env["PATH_INFO"]
      when "/left" then Thread.current[:left] = "left"
      when "/failed" then raise "failed"
      end
      [200, {}, [seen]]
    end
    bodies = lambda do |*paths|
      client = connect
      client.send(paths.map { |path| "GET #{path} HTTP/1.1\r\nHost: a\r\n\r\n" }.join)
      paths.map { client.response.body.split }
    end
    rows = bodies.call(*["/"] * 20)
    assert_equal [rows[0]], rows.uniq
    # A fiber that has something left behind is not used again.
    before, left, *after = bodies.call("/", "/left", "/", "/")
    assert_equal before, left
    refute_equal before[0], after[0][0]
    assert_equal [after[0]], after.uniq
    assert_equal 2, after[0].size
    stderr_of do
      failed, *after = bodies.call("/failed", "/", "/")
      refute_equal after[0], failed
      assert_equal [after[0]], after.uniq
    end
  ensure
    counter.disable
  end

  def test_no_more_requests_run_than_there_may_be_fibers
    inside, most, gate = 0, 0, Queue.new
    server = serve(fibers: 3, counts: true) do
      most = [most, inside += 1].max
      gate.pop
      inside -= 1
      [200, {}, ["done"]]
    end
    said = stderr_of do
      clients = Array.new(10) { ask("/") }
      eventually do
        worker = JSON.parse(server.engine.stats).fetch("workers")[0]
        worker.values_at("waiting_requests", "waiting") == [3, 7]
      end
      10.times { gate << true }
      clients.each { |client| assert_equal "done", client.response.body }
    end
    assert_equal 3, most
    assert_includes said, "all fibers are in use while requests wait"
  end

  def test_requests_that_compute_leave_the_road_to_others
    is_over = false
    serve(threads: 3) do |env|
      if env["PATH_INFO"] == "/compute"
        nil until is_over
      else
        sleep 0.001
      end
      [200, {}, [env["PATH_INFO"]]]
    end
    computing = Array.new(2) { ask("/compute") }
    Timeout.timeout(PATIENCE_SECONDS) { 5.times { assert_equal "/go", get("/go").body } }
    is_over = true
    computing.each { |client| assert_equal "/compute", client.response.body }
    assert_equal "/go", get("/go").body
  end

  def test_fibers_go_on_beside_the_thread_that_has_taken_the_lead
    is_over, gate = false, Queue.new
    serve(threads: 2) do |env|
      case env["PATH_INFO"]
      when "/wait" then gate.pop && sleep(0.001)
      when "/compute" then nil until is_over
      end
      [200, {}, [env["PATH_INFO"]]]
    end
    waiting = Array.new(5) { ask("/wait") }
    eventually { gate.num_waiting == 5 }
    computing = ask("/compute")
    # Another thread takes the lead after this response.
    assert_equal "/go", get("/go").body
    is_over = true
    assert_equal "/compute", computing.response.body
    5.times { gate << true }
    waiting.each { |client| assert_equal "/wait", client.response.body }
  end

  def test_bodies_wait_in_fibers
    each = Class.new do
      def each
        3.times { |n| sleep(0.001) && yield(n.to_s) }
      end
    end
    stream = lambda do |out|
      3.times { |n| sleep(0.001) && out.write(n.to_s) }
      out.close
    end
    serve { |env| [200, {}, env["PATH_INFO"] == "/each" ? each.new : stream] }
    clients = Array.new(10) { |n| ask(n.even? ? "/each" : "/stream") }
    clients.each { |client| assert_equal "012", client.response.body }
  end

  def test_a_stream_whose_client_has_gone_ends_while_it_waits
    ended = Queue.new
    bodies = Class.new do
      define_method(:each) do |&block|
        block.call("first")
        sleep
      end
      define_method(:close) { ended << :closed }
    end
    serve do |env|
      env["rack.response_finished"] = [->(_, _, _, error) { ended << error.class }]
      next [200, {}, bodies.new] if env["PATH_INFO"] == "/each"

      [200, {}, lambda do |stream|
        stream.write("first")
        sleep
      ensure
        ended << :closed
      end]
    end
    said = stderr_of do
      %w[/each /stream].each do |path|
        client = ask(path)
        client.read_head
        client.io.close
        events = Array.new(2) { Timeout.timeout(PATIENCE_SECONDS) { ended.pop } }
        assert_equal [:closed, Errno::EPIPE], events
      end
    end
    assert_empty said
  end

  def test_the_first_write_to_a_client_that_has_gone_raises_in_a_thread
    gate, ended = Queue.new, Queue.new
    server = serve(fibers: 0) do
      [200, {}, lambda do |stream|
        stream.write("first")
        gate.pop
        stream.write("second")
      rescue SystemCallError => e
        ended << e.class
      end]
    end
    client = ask("/")
    client.read_head
    client.io.close
    eventually { server.engine.connections == 0 }
    gate << true
    assert_equal Errno::EPIPE, ended.pop
  end

  def test_a_client_that_closed_its_half_reads_a_stream_to_its_end
    serve { [200, {}, ->(out) { 3.times { out.write("x") && sleep(0.01) } && out.close }] }
    client = ask("/")
    client.io.close_write
    assert_equal "xxx", client.response.body
  end

  def test_a_slow_client_holds_up_its_own_fiber_only
    serve(response_memory_bytes_max: 1 << 16, response_file_bytes_max: 0) do |env|
      next [200, {}, ["go"]] if env["PATH_INFO"] == "/go"

      [200, {}, ->(out) { 64.times { out.write("x" * (1 << 20)) } && out.close }]
    end
    slow = ask("/")
    slow.read_head
    5.times { assert_equal "go", get("/go").body }
    size = 0
    while (length = slow.io.gets("\r\n").to_i(16)).positive?
      size += slow.io.read(length + 2).bytesize - 2
    end
    assert_equal 64 << 20, size
  end

  def test_uploads_hijacks_hints_and_callbacks_work_in_fibers
    finished = Queue.new
    serve do |env|
      (env["rack.response_finished"] ||= []) << ->(*) { sleep(0.001) && finished << 1 }
      case env["PATH_INFO"]
      when "/upload"
        sleep 0.001
        [200, {}, [env["rack.input"].read.bytesize.to_s]]
      when "/hijack"
        io = env["rack.hijack"].call
        sleep 0.001
        io << "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
        io.close
        [-1, {}, []]
      else
        env["rack.hijack"].hint("link" => "</a>")
        sleep 0.001
        [200, {}, ["hinted"]]
      end
    end
    assert_equal "3000000", get("/upload", method: "POST", body: "x" * 3_000_000).body
    assert_equal "hi", get("/hijack").body
    hinted = ask("/")
    assert_equal 103, hinted.response.status
    assert_equal "hinted", hinted.response.body
    3.times { Timeout.timeout(PATIENCE_SECONDS) { finished.pop } }
  end

  def test_a_killed_thread_answers_its_requests_and_is_replaced
    serve do |env|
      case env["PATH_INFO"]
      when "/kill" then Thread.current.kill
      when "/wait" then sleep
      end
      [200, {}, ["alive"]]
    end
    said = stderr_of do
      waiting = Array.new(3) { ask("/wait") }
      assert_equal "alive", get("/").body
      ask("/kill").closed?
      waiting.each { |client| assert_equal 500, client.response.status }
      assert_equal "alive", get("/").body
    end
    assert_includes said, "ended unexpectedly"
  end

  # Between two slices, a leader has the interpreter lock until it passes the lock on to a thread
  # that computes.
  def test_a_leader_that_is_killed_while_it_passes_the_lock_on_answers_its_requests
    waits = Queue.new
    leader = nil
    is_inside = true
    serve(threads: 2) do |env|
      case env["PATH_INFO"]
      when "/compute"
        nil while is_inside
        leader.kill
      when "/wait" then waits.pop
      else
        is_inside = true
        leader = Thread.current
        is_inside = false
      end
      [200, {}, ["ok"]]
    end
    stderr_of do
      computing = ask("/compute")
      waiting = ask("/wait")
      eventually { waits.num_waiting == 1 }
      others = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 200)
      assert_equal 500, waiting.response.status
      [computing, *[others] * 200].each { |client| assert_equal "ok", client.response.body }
      eventually { $stderr.string.include?("ended unexpectedly (killed)") }
    end
  end

  def test_a_fork_in_a_fiber_is_an_ordinary_process
    reader, writer = IO.pipe
    serve do
      id = fork do
        sleep 0.001
        writer << Thread.new { Queue.new.tap { |queue| Thread.new { queue << "child" } }.pop }.value
        exit!(7)
      end
      Process.wait(id)
      [200, {}, [[$?.exitstatus, reader.readpartial(5)].join(" ")]]
    end
    other = ask("/")
    assert_equal "7 child", get.body
    assert_equal "7 child", other.response.body
  end

  def test_a_stop_waits_for_fibers
    gate = Queue.new
    server = serve { gate.pop && [200, {}, ["last words"]] }
    clients = Array.new(3) { ask("/") }
    eventually { gate.num_waiting == 3 }
    server.stop(PATIENCE_SECONDS)
    3.times { gate << true }
    clients.each { |client| assert_equal "last words", client.response.body }
    @servings[0][1].join
  end

  def test_fibers_that_never_end_are_ended
    ended = Queue.new
    server = serve do
      sleep
    ensure
      ended << true
    end
    clients = Array.new(3) { ask("/") }
    eventually { server.engine.requests == 3 }
    stderr_of do
      server.stop(0.05)
      @servings[0][1].join(PATIENCE_SECONDS)
    end
    clients.each { |client| assert_equal 503, client.response.status }
    assert_equal 3, ended.size
  end
end
