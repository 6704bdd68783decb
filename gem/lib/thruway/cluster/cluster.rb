# frozen_string_literal: true

require_relative "../support/bare_socket"
require_relative "../support/failure"
require_relative "../support/hooks"
require_relative "../support/signals"
require_relative "refork_worker_handle"
require_relative "worker"
require_relative "worker_slot"

module Thruway
  # The processes of a cluster: they are started, heard, and buried here.
  class WorkerPool
    # What a worker has beyond its time to end before it is killed.
    GRACE_SECONDS = 5

    # Workers that can be added at run time.
    MORE_MAX = 8

    # When a worker is started again for which the system has had no process, or no descriptors.
    AGAIN_SECONDS = 1

    # How long a message to a dead worker may be under way.
    SWEEP_SECONDS = 1

    TEMPLATE_ENDED = "the template has ended; workers are forked from the supervisor again"

    # What `after_worker_shutdown` is told.
    Ended = Struct.new(:index, :pid, :process_status)

    attr_reader :places, :fleet, :template, :objection
    attr_accessor :configuration, :application

    # `before` is what the server before this one has left, or nil.
    def initialize(configuration, application, listeners, before = nil)
      @configuration = configuration
      @application = application
      @listeners = listeners
      @reports = {}
      @leaving = []
      @ending_templates = []
      count = configuration.workers
      # A worker may still be busy while its successor serves.
      @slots = Array.new((2 * count) + MORE_MAX)
      @places_max = count + MORE_MAX
      @fleet = Fleet.create(@slots.size, before&.handover)
      @alive, @master_alive = before ? before.alive : IO.pipe
      @places = Array.new(count) { |index| Place.new(index) }
      take_over(before.workers) if before
    end

    # What the next program needs to go on with these processes.
    def inheritance
      { handover: @fleet.handover, alive: [@alive.fileno, @master_alive.fileno],
        workers: processes.to_h { |one| [one.pid, @leaving.include?(one) ? nil : one.index] } }
    end

    # Descriptors to be waited for.
    def reports = @reports.keys

    # Descriptors that a child has no business with.
    def own_descriptors
      [*@reports.keys, *processes.filter_map(&:orders), *@template&.orders, @master_alive].uniq
    end

    def processes = @places.flat_map(&:processes) + @leaving

    def empty? = processes.empty? && @template.nil? && @ending_templates.empty?

    def ready? = @places.all?(&:ready?)

    def none_ready? = @places.none?(&:ready?)

    def settled? = ready? && @leaving.empty? && @swept_at.nil?

    # Fills the places that may be filled. The block is called in each new process.
    def start_due(&in_child)
      @places.each do |place|
        next if place.current || place.successor || place.due > now

        place.current = start(place, &in_child)
      end
    end

    # Starts a process that replaces the one in a place as soon as it serves. None if there is no
    # slot for it yet.
    def replace(place, &in_child)
      place.successor = start(place, &in_child)
    end

    # Makes room for so many workers, or lets the last ones end. Whether that can be.
    def resize(count)
      return false unless (1..@places_max).cover?(count)

      @places << Place.new(@places.size) while @places.size < count
      @places.pop.processes.each { |process| retire(process) } while @places.size > count
      true
    end

    # The worker that has served most becomes the template when its successor serves. Its place; nil
    # if there is none.
    def nominate
      able = @places.select { |place| place.ready? && place.current.orders }
      place = able.max_by { |one| one.current.requests }
      @objection = nil
      @candidate = place&.current
      place
    end

    # It stays a worker.
    def forget_candidate = @candidate = nil

    # Whether a worker is about to become the template.
    def candidate? = !@candidate.nil?

    # Requests of the worker that has served most.
    def requests_max = @places.filter_map { |place| place.current&.requests }.max || 0

    # Workers are forked from this process again.
    def drop_template
      return unless @template

      @template.close
      @ending_templates << @template.pid
      @template = nil
    end

    # Lets a process end; others go on with its connections.
    def retire(process)
      return if process.nil? || process.asked

      process.asked = now
      @leaving << process unless @leaving.include?(process)
      tell(process, "USR1")
    end

    def tell(process, signal)
      Process.kill(signal, process.pid)
    rescue Errno::ESRCH
      nil
    end

    # The template is told, too.
    def tell_all(signal)
      [*processes, *@template].each { |process| tell(process, signal) }
    end

    # Takes what a worker has said.
    def hear(io)
      process = @reports[io]
      text = io.read_nonblock(4096, exception: false)
      return if text == :wait_readable
      return forget(io) if text.nil? || text.empty?

      process.seen = now
      text.each_line(chomp: true) { |line| take_word(process, *line.split) }
    rescue Errno::ECONNRESET
      # It has ended, and has not read all.
      forget(io)
    end

    # Buries what has ended, and gives each to the block with how long its place stays empty.
    def reap(pid, status)
      return bury_template(pid) if pid == @template&.pid || @ending_templates.include?(pid)

      process = processes.find { |one| one.pid == pid } or return
      process.status = status
      close_orders(process)
      @candidate = nil if process.equal?(@candidate)
      Hooks.run(@configuration, :after_worker_shutdown, Ended.new(process.index, pid, status))
      free(process)
      yield process, bury(process)
    end

    # Ends what takes longer than it may. The reason is given to the block.
    def end_late
      processes.each do |process|
        next if process.why || !(why = lateness(process))

        process.why = why
        yield process, why
      end
      sweep
    end

    # A place whose worker has had its time, and why; none if all may go on.
    def worn
      @places.each do |place|
        process = place.current
        next if process.nil? || process.slot.nil? || !process.ready

        why = wear(process)
        return [place, why] if why
      end
      nil
    end

    # The workers see the pipe end, take the connections that wait, and close the listeners for all.
    def end_all
      @master_alive.close
      tell_all("TERM")
    end

    def close
      [@alive, @master_alive, *@reports.keys].each { |io| io&.close }
      @template&.close
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def take_over(workers)
      workers.each do |pid, index|
        process = WorkerProcess.new(index: index || 0, pid: pid, started: now, ready: true)
        place = @places[index] if index
        place ? place.current = process : retire(process)
      end
    end

    def start(place, &in_child)
      slot = @slots.index(nil) or return
      Hooks.run(@configuration, :before_worker_fork, place.index)
      process = WorkerProcess.new(index: place.index, slot: slot, started: now, ready: false,
                                  seen: now, requests: 0, kilobytes: 0)
      hears = start_from_template(process) || start_from_here(process, &in_child)
      @slots[slot] = process
      @reports[hears] = process
      Hooks.run(@configuration, :after_worker_fork, place.index)
      process
    rescue SystemCallError => e
      Signals.say("cannot start worker #{place.index}: #{e.message}")
      place.due = now + AGAIN_SECONDS
      nil
    end

    # A template that does not answer is of no use.
    def start_from_template(process)
      return unless @template

      hears = connect(process) { |_, *its| @template.fork(process.index, process.slot, *its) }
      process.is_forked_from_template = !hears.nil?
      return hears if hears

      drop_template
      Signals.say(TEMPLATE_ENDED)
      nil
    end

    def start_from_here(process, &in_child)
      connect(process) { |*all| fork { work(process, *all, &in_child) } }
    end

    # Starts a process with the block, which gives its number. What it says comes from the pipe. A
    # process without a number may live all the same: its pipe has no reader then, and it ends.
    def connect(process)
      hears, says = IO.pipe
      process.orders, its_orders = UNIXSocket.pair(:SEQPACKET)
      process.pid = yield hears, says, its_orders
      hears if process.pid
    ensure
      [says, its_orders].each { |io| io&.close }
      [hears, process.orders].each { |io| io&.close } unless process.pid
    end

    # What the new process does.
    def work(process, hears, says, orders)
      [hears, process.orders, *own_descriptors].each(&:close)
      yield
      worker = Worker.new(process.index, @configuration, @application, @listeners,
                          fleet: @fleet, slot: process.slot)
      exit!(worker.run(alive: @alive, says: says, orders: orders))
    end

    # It may have said why it ends.
    def close_orders(process)
      return unless process.orders

      hear(process.orders) if @reports.key?(process.orders)
      @reports.delete(process.orders)
      process.orders.close
    end

    def forget(io)
      @reports.delete(io)
      io.close
    end

    def take_word(process, word, *rest)
      case word
      when "ready" then take_place(process)
      when "beat" then process.requests, process.kilobytes = rest.map(&:to_i)
      when "template" then take_template(process)
      when "objection" then @objection = rest.join(" ")
      end
    end

    def take_place(process)
      process.ready = true
      place = @places.find { |one| one.successor.equal?(process) } or return
      old = place.promote
      ask_for_template(old) if old && old.equal?(@candidate)
      retire(old)
    end

    # When it has no requests any more.
    def ask_for_template(process)
      process.orders.send("template", 0)
      @reports[process.orders] = process
      System.adopt_orphans
    rescue SystemCallError
      # It ends: that is heard of.
      nil
    end

    # The worker has become one: it has no place any more, and no connections.
    def take_template(process)
      @reports.delete(process.orders)
      return unless process.equal?(@candidate)

      @candidate = nil
      @leaving.delete(process)
      free(process)
      drop_template
      @template = TemplateProcess.new(process)
    end

    def bury_template(pid)
      return if @ending_templates.delete(pid)

      @template.close
      @template = nil
      Signals.say(TEMPLATE_ENDED)
    end

    # Its slot is for others again, and so is what siblings have sent there.
    def free(process)
      return unless process.slot

      @slots[process.slot] = nil
      @fleet.bury(process.slot)
      @swept_at = now + SWEEP_SECONDS
    end

    def sweep
      return unless @swept_at && now >= @swept_at

      @fleet.sweep
      @swept_at = nil
    end

    # Seconds until its place is filled again, if it has left one.
    def bury(process)
      return if @leaving.delete(process)

      # Otherwise the next one would fail as well.
      drop_template if process.is_forked_from_template && !process.ready
      place = @places.find { |one| one.processes.include?(process) } or return
      return place.successor = nil if place.successor.equal?(process)

      place.vacate(now)
    end

    def wear(process)
      configuration = @configuration
      limits = { "requests" => [process.requests, configuration.worker_requests_max],
                 "MiB" => [process.kilobytes / 1024, configuration.worker_megabytes_max],
                 "seconds" => [(now - process.started).to_i, configuration.worker_age_seconds_max] }
      unit, (count, _) = limits.find { |_, (now, most)| most&.positive? && now >= most }
      unit && "after #{count} #{unit}"
    end

    def lateness(process)
      configuration = @configuration
      if process.asked
        limit = process.asked + configuration.worker_shutdown_seconds + GRACE_SECONDS
        return "has not ended in time" if now > limit
      elsif !process.ready
        seconds = configuration.worker_boot_seconds
        return "has not booted within #{seconds.to_i} s" if now >= process.started + seconds
      elsif process.slot && (seconds = configuration.worker_hang_seconds)
        return "has not run Ruby for #{seconds.to_i} s" if now >= process.seen + seconds
      end
    end
  end
end
