# frozen_string_literal: true

require_relative "failure"
require_relative "place"
require_relative "signals"
require_relative "worker"

module Thruway
  # The processes of a cluster: they are started, heard, and buried here.
  class WorkerPool
    # What a worker has beyond its time to end before it is killed.
    GRACE_SECONDS = 5

    # How long a message to a dead worker may be under way.
    SWEEP_SECONDS = 1

    # What `after_worker_shutdown` is told.
    Ended = Struct.new(:index, :pid, :process_status)

    attr_reader :places, :fleet
    attr_accessor :configuration, :application

    # `before` is what the server before this one has left, or nil.
    def initialize(configuration, application, listeners, before = nil)
      @configuration = configuration
      @application = application
      @listeners = listeners
      @reports = {}
      @leaving = []
      count = configuration.workers
      # A worker may still be busy while its successor serves.
      @slots = Array.new(2 * count)
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
    def own_descriptors = [*@reports.keys, @master_alive]

    def processes = @places.flat_map(&:processes) + @leaving

    def empty? = processes.empty?

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

    def tell_all(signal) = processes.each { |process| tell(process, signal) }

    # Takes what a worker has said.
    def hear(io)
      process = @reports[io]
      text = io.read_nonblock(4096, exception: false)
      return if text == :wait_readable
      return forget(io) if text.nil?

      process.seen = now
      text.each_line(chomp: true) { |line| take_word(process, *line.split) }
    end

    # Buries what has ended, and gives each to the block with how long its place stays empty.
    def reap(pid, status)
      process = processes.find { |one| one.pid == pid } or return
      process.status = status
      @configuration.run_hooks(:after_worker_shutdown, Ended.new(process.index, pid, status))
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
      @configuration.run_hooks(:before_worker_fork, place.index)
      hears, says = IO.pipe
      process = WorkerProcess.new(index: place.index, slot: slot, started: now, ready: false,
                                  seen: now, requests: 0, kilobytes: 0)
      process.pid = fork { work(process, hears, says, &in_child) }
      says.close
      @slots[slot] = process
      @reports[hears] = process
      @configuration.run_hooks(:after_worker_fork, place.index)
      process
    end

    # What the new process does.
    def work(process, hears, says)
      [hears, *own_descriptors].each(&:close)
      yield
      worker = Worker.new(process.index, @configuration, @application, @listeners,
                          fleet: @fleet, slot: process.slot)
      exit!(worker.run(alive: @alive, says: says))
    end

    def forget(io)
      @reports.delete(io)
      io.close
    end

    def take_word(process, word, requests = 0, kilobytes = 0)
      process.requests, process.kilobytes = requests.to_i, kilobytes.to_i
      return unless word == "ready"

      process.ready = true
      place = @places.find { |one| one.successor.equal?(process) }
      retire(place.promote) if place
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
