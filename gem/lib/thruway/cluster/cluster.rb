# frozen_string_literal: true

require_relative "../support/bare_socket"
require_relative "../support/failure"
require_relative "../support/hooks"
require_relative "../support/signals"
require_relative "refork_worker_handle"
require_relative "worker"
require_relative "worker_slot"

module Thruway
  # The worker processes of a server: starts them, reads their reports, signals them, and releases
  # the resources of ended ones. The `Supervisor` decides when.
  class Cluster
    # The time after a worker's shutdown timeout before the supervisor kills the worker.
    GRACE_SECONDS = 5

    # The number of workers that signals can add to the configured number.
    EXTRA_WORKERS_MAX = 8

    # The delay before the next attempt after the system had no process or descriptor for a worker.
    RETRY_SECONDS = 1

    # The longest time for which a connection may be in transit to a dead worker.
    SWEEP_SECONDS = 1

    TEMPLATE_ENDED = "the refork template has exited; the supervisor forks workers itself again"

    # The argument of the hook `after_worker_shutdown`.
    EndedWorker = Struct.new(:index, :pid, :process_status)

    # `objection` is the reason why the last candidate could not become the template.
    attr_reader :slots, :table, :template, :objection
    attr_accessor :configuration, :application

    # `previous` is the `Inheritance` of the previous server, or nil.
    def initialize(configuration, application, listeners, previous = nil)
      @configuration = configuration
      @application = application
      @listeners = listeners
      @report_pipes = {}
      @leaving = []
      @ending_templates = []
      count = configuration.workers
      # In a rollout, a worker may drain for long while its successor serves, so there are twice as
      # many entries as workers.
      @table_entries = Array.new((2 * count) + EXTRA_WORKERS_MAX)
      @slots_max = count + EXTRA_WORKERS_MAX
      @table = WorkerTable.create(@table_entries.size, previous&.handover)
      make_cache
      listeners.uris.each { |uri| @table.report_certificates_of(uri) }
      @alive, @supervisor_alive = previous ? previous.alive : IO.pipe
      @slots = Array.new(count) { |index| WorkerSlot.new(index) }
      take_over(previous.workers) if previous
    end

    # Creates the cache that all workers share, if one is configured.
    def make_cache
      size = configuration.cache_bytes_max
      @table.make_cache(size, configuration.cache_item_bytes_max) if size.positive?
    rescue RuntimeError => e
      raise Failure.new(e.message, hint: "give --cache a smaller size")
    end

    # The part of an `Inheritance` by which the next program takes over these processes.
    def inheritance
      { handover: @table.handover, alive: [@alive.fileno, @supervisor_alive.fileno],
        workers: processes.to_h { |one| [one.pid, @leaving.include?(one) ? nil : one.index] } }
    end

    # The pipes and sockets on which reports arrive.
    def report_pipes = @report_pipes.keys

    # The descriptors of the supervisor alone, which a new worker closes.
    def own_descriptors
      [*@report_pipes.keys, *processes.filter_map(&:orders), *@template&.orders,
       @supervisor_alive].uniq
    end

    def processes = @slots.flat_map(&:processes) + @leaving

    def empty? = processes.empty? && @template.nil? && @ending_templates.empty?

    def ready? = @slots.all?(&:ready?)

    def none_ready? = @slots.none?(&:ready?)

    def settled? = ready? && @leaving.empty? && @swept_at.nil?

    # Starts a worker in each empty slot that is due. Each new process calls the block.
    def start_due(&in_child)
      @slots.each do |slot|
        next if slot.current || slot.successor || slot.due_at > now

        slot.current = start(slot, &in_child)
      end
    end

    # Starts a process that replaces the slot's current process once the new one serves. Returns nil
    # while the worker table has no free entry.
    def replace(slot, &in_child)
      slot.successor = start(slot, &in_child)
    end

    # Adds slots, or removes the last ones and retires their workers. Returns whether `count` is
    # allowed.
    def resize(count)
      return false unless (1..@slots_max).cover?(count)

      @slots << WorkerSlot.new(@slots.size) while @slots.size < count
      @slots.pop.processes.each { |process| retire(process) } while @slots.size > count
      true
    end

    # Chooses the worker with the most requests to become the template when the worker's successor
    # serves. Returns the worker's slot, or nil if no worker can become the template.
    def choose_candidate
      slot = able_slots.max_by { |one| one.current.requests }
      @objection = nil
      @candidate = slot&.current
      slot
    end

    # Whether no worker can become the template yet, and a worker is booting.
    def awaits_candidate?
      able_slots.empty? && @slots.any? { |slot| slot.current && !slot.ready? }
    end

    # Lets the candidate remain a worker.
    def drop_candidate = @candidate = nil

    # Whether a worker is about to become the template.
    def candidate? = !@candidate.nil?

    # The largest number of requests that a worker has served.
    def requests_max = @slots.filter_map { |slot| slot.current&.requests }.max || 0

    # Ends the template. The supervisor forks workers itself from then on.
    def drop_template
      return unless @template

      @template.close
      @ending_templates << @template.pid
      @template = nil
    end

    # Whether a leaving worker of this server still accepts connections. A worker handles its signal
    # only when Ruby runs the main thread, and until then a new connection could reach the old code.
    def old_worker_accepts?
      @leaving.any? { |process| process.table_index && @table.accepts?(process.table_index) }
    end

    # Retires a process. Other workers take over its connections.
    def retire(process)
      return if process.nil? || process.retired_at

      process.retired_at = now
      @leaving << process unless @leaving.include?(process)
      signal(process, "USR1")
    end

    def signal(process, name)
      Process.kill(name, process.pid)
    rescue Errno::ESRCH
      nil
    end

    # Sends a signal to all workers, and to the template.
    def signal_all(name)
      [*processes, *@template].each { |process| signal(process, name) }
    end

    # Reads the reports that have arrived on one of the `report_pipes`.
    def read_reports(io)
      process = @report_pipes[io]
      text = io.read_nonblock(4096, exception: false)
      return if text == :wait_readable
      return close_pipe(io) if text.nil? || text.empty?

      process.last_seen_at = now
      text.each_line(chomp: true) { |line| follow_report(process, *line.split) }
    rescue Errno::ECONNRESET
      # The process has ended without reading all of its orders.
      close_pipe(io)
    end

    # Releases the resources of the ended process `pid`. Yields a worker's process, and the seconds
    # until its slot is filled again: nil if the process was leaving.
    def reap(pid, status)
      return reap_template(pid) if pid == @template&.pid || @ending_templates.include?(pid)

      process = processes.find { |one| one.pid == pid } or return
      process.status = status
      close_orders(process)
      @candidate = nil if process.equal?(@candidate)
      ended = EndedWorker.new(process.index, pid, status)
      Hooks.run(@configuration, :after_worker_shutdown, ended)
      free_table_entry(process)
      yield process, vacate(process)
    end

    # Yields each process that exceeds a time limit, once, with the reason.
    def each_overdue
      processes.each do |process|
        next if process.kill_reason || !(reason = overdue_reason(process))

        process.kill_reason = reason
        yield process, reason
      end
      sweep
    end

    # The first slot whose worker has reached a limit for recycling, and the limit in words; nil if
    # no worker has.
    def slot_to_recycle
      @slots.each do |slot|
        process = slot.current
        next if process.nil? || process.table_index.nil? || !process.ready

        limit = reached_limit(process)
        return [slot, limit] if limit
      end
      nil
    end

    # Ends all workers. Each worker notices the end of the pipe, accepts the queued connections, and
    # shuts the listeners down for all processes.
    def end_all
      @supervisor_alive.close
      signal_all("TERM")
    end

    # Closes the pipes to all workers, and the socket of the refork template.
    def close
      [@alive, @supervisor_alive, *@report_pipes.keys].each { |io| io&.close }
      @template&.close
    end

    private

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # The slots whose workers can become the template.
    def able_slots = @slots.select { |slot| slot.ready? && slot.current.orders }

    # Puts the workers of the previous server into the slots, and retires workers without a slot.
    def take_over(workers)
      workers.each do |pid, index|
        process = WorkerProcess.new(index: index || 0, pid: pid, started_at: now, ready: true)
        slot = @slots[index] if index
        slot ? slot.current = process : retire(process)
      end
    end

    def start(slot, &in_child)
      table_index = @table_entries.index(nil) or return
      Hooks.run(@configuration, :before_worker_fork, slot.index)
      process = WorkerProcess.new(index: slot.index, table_index: table_index, started_at: now,
                                  ready: false, last_seen_at: now, requests: 0, kilobytes: 0)
      pipe = start_from_template(process) || start_from_here(process, &in_child)
      @table_entries[table_index] = process
      @report_pipes[pipe] = process
      Hooks.run(@configuration, :after_worker_fork, slot.index)
      process
    rescue SystemCallError => e
      Signals.say("cannot start worker #{slot.index}: #{e.message}")
      slot.due_at = now + RETRY_SECONDS
      nil
    end

    # Starts a worker from the template. Drops a template that does not respond.
    def start_from_template(process)
      return unless @template

      pipe = connect(process) do |_, *descriptors|
        @template.fork(process.index, process.table_index, *descriptors)
      end
      process.is_forked_from_template = !pipe.nil?
      return pipe if pipe

      drop_template
      Signals.say(TEMPLATE_ENDED)
      nil
    end

    def start_from_here(process, &in_child)
      connect(process) { |*all| fork { work(process, *all, &in_child) } }
    end

    # Starts a process by the block, which returns the process number. Returns the pipe of the
    # process's reports. A process whose number is lost ends by itself, because no process reads its
    # pipe.
    def connect(process)
      pipe, reports = IO.pipe
      process.orders, its_orders = UNIXSocket.pair(:SEQPACKET)
      process.pid = yield pipe, reports, its_orders
      pipe if process.pid
    ensure
      [reports, its_orders].each { |io| io&.close }
      [pipe, process.orders].each { |io| io&.close } unless process.pid
    end

    # Runs a worker in the new process.
    def work(process, pipe, reports, orders)
      [pipe, process.orders, *own_descriptors].each(&:close)
      yield
      worker = Worker.new(process.index, @configuration, @application, @listeners,
                          table: @table, table_index: process.table_index)
      exit!(worker.run(alive: @alive, reports: reports, orders: orders))
    end

    # The socket is read before it is closed, because the process may have reported why it ends.
    def close_orders(process)
      return unless process.orders

      read_reports(process.orders) if @report_pipes.key?(process.orders)
      @report_pipes.delete(process.orders)
      process.orders.close
    end

    def close_pipe(io)
      @report_pipes.delete(io)
      io.close
    end

    def follow_report(process, word, *rest)
      case word
      when "ready" then mark_ready(process)
      when "beat" then process.requests, process.kilobytes = rest.map(&:to_i)
      when "template" then take_template(process)
      when "objection" then @objection = rest.join(" ")
      end
    end

    def mark_ready(process)
      process.ready = true
      slot = @slots.find { |one| one.successor.equal?(process) } or return
      old = slot.promote
      ask_for_template(old) if old && old.equal?(@candidate)
      retire(old)
    end

    # Orders the worker to become the template after its last request.
    def ask_for_template(process)
      process.orders.send("template", 0)
      @report_pipes[process.orders] = process
      System.adopt_orphans
    rescue SystemCallError
      # The worker has ended, as `reap` will report.
      nil
    end

    # The worker has become the template, and has no slot and no connections any longer.
    def take_template(process)
      @report_pipes.delete(process.orders)
      return unless process.equal?(@candidate)

      @candidate = nil
      @leaving.delete(process)
      free_table_entry(process)
      drop_template
      @template = ReforkWorkerHandle.new(process)
    end

    def reap_template(pid)
      return if @ending_templates.delete(pid)

      @template.close
      @template = nil
      Signals.say(TEMPLATE_ENDED)
    end

    # Frees the process's entry in the worker table. Siblings may just have sent connections to the
    # entry, so `sweep` collects them later.
    def free_table_entry(process)
      return unless process.table_index

      @table_entries[process.table_index] = nil
      @table.mark_dead(process.table_index)
      @swept_at = now + SWEEP_SECONDS
    end

    def sweep
      return unless @swept_at && now >= @swept_at

      @table.sweep
      @swept_at = nil
    end

    # Removes an ended process from its slot. Returns the seconds until the slot is filled again;
    # nil if the process was leaving or was a successor.
    def vacate(process)
      return if @leaving.delete(process)

      # Another process from the same template would also fail to boot.
      drop_template if process.is_forked_from_template && !process.ready
      slot = @slots.find { |one| one.processes.include?(process) } or return
      return slot.successor = nil if slot.successor.equal?(process)

      slot.vacate(now)
    end

    def reached_limit(process)
      configuration = @configuration
      age = (now - process.started_at).to_i
      limits = { "requests" => [process.requests, configuration.worker_requests_max],
                 "MiB" => [process.kilobytes / 1024, configuration.worker_megabytes_max],
                 "seconds" => [age, configuration.worker_age_seconds_max] }
      unit, (count, _) = limits.find { |_, (count, most)| most&.positive? && count >= most }
      unit && "#{count} #{unit}"
    end

    def overdue_reason(process)
      configuration = @configuration
      if process.retired_at
        limit = process.retired_at + configuration.worker_shutdown_seconds + GRACE_SECONDS
        return "has not stopped in time" if now > limit
      elsif !process.ready
        seconds = configuration.worker_boot_seconds
        return "has not booted within #{seconds.to_i} s" if now >= process.started_at + seconds
      elsif process.table_index && (seconds = configuration.worker_hang_seconds)
        hangs = now >= process.last_seen_at + seconds
        return "has not run Ruby code for #{seconds.to_i} s" if hangs
      end
    end
  end
end
