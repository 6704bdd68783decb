# frozen_string_literal: true

require_relative "../application/runtime"
require_relative "../support/failure"
require_relative "../support/hooks"
require_relative "../support/redirection"
require_relative "../support/signals"
require_relative "cluster"
require_relative "rollout"

module Thruway
  # The process that keeps a cluster of workers running: starts and replaces workers, and follows
  # the signals of operators. All workers serve the same listeners.
  class Supervisor
    # The time for a hung worker to log its backtraces before it is killed.
    BACKTRACE_SECONDS = 0.5

    # The interval at which the supervisor checks whether the last old worker has stopped accepting.
    ROLLOUT_END_SECONDS = 0.005

    # `previous` is the `Inheritance` of the previous server, or nil.
    def initialize(launcher, previous = nil)
      @launcher = launcher
      @previous = previous
      @has_served = !previous.nil?
      @orders = launcher.orders
      @redirection = Redirection.new(configuration)
    end

    # Yields when every worker serves, and returns when all workers have ended.
    def run(&ready)
      @wakeup, @waker = IO.pipe
      @cluster = Cluster.new(configuration, @launcher.application, @launcher.listeners, @previous)
      @rollout = Rollout.new { @cluster.old_worker_accepts? }
      trap_signals if @previous
      stop if @launcher.stopped?
      boot unless @stopping
      trap_signals
      supervise(&ready)
    ensure
      # The writing end is closed first: a trap in between would raise on a pipe without a reader.
      [@waker, @wakeup].each { |io| io&.close }
      @cluster&.close
    end

    # Lets the workers finish their requests and end. May be called from a trap.
    def stop
      @delay_over = true if @stopping
      @stopping ||= now
      wake
    end

    # The counters of all workers, as JSON.
    def stats = @cluster.table.stats

    # The processes that serve or boot.
    def workers = @cluster ? @cluster.slots.filter_map(&:current) : []

    # Removes the responses that match `pattern` from the cache. Returns the number of removed
    # responses.
    def purge(pattern) = @cluster.table.purge(pattern)

    private

    def configuration = @launcher.configuration

    def notifier = @launcher.notifier

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # Loads the application. A failure to boot ends the server, unless inherited workers serve
    # already.
    def boot
      notifier.while_alive { @launcher.application.load } if configuration.preload
      Hooks.run(configuration, :before_fork)
      Runtime.warm_up if configuration.preload && configuration.warm_up
    rescue Failure => e
      raise unless @previous

      e.report
      @boot_error = "the application does not boot"
    end

    def trap_signals
      Signals.trap_stop { stop }
      Signals.trap_orders { |order| take_order(order) }
      Signal.trap("CHLD") { wake }
    end

    def take_order(order)
      Signals.queue(@orders, order)
      wake
    end

    # Wakes the main loop. Traps call this method, so it must not raise: if a trap raises while the
    # process exits, even a rescued error may cost the exit status. Threads other than the main one
    # may find the pipe closed.
    def wake
      @waker.write_nonblock(".", exception: false) unless @waker.closed?
    rescue SystemCallError, IOError
      nil
    end

    def supervise(&ready)
      begin_service(&ready)
      until @stopping && @cluster.empty?
        @stopping ? go_on_stopping : go_on
        wait_for_reports
        reap
        kill_overdue
        notifier.alive
      end
    end

    # After a hot restart, replaces the workers of the previous server.
    def begin_service(&ready)
      @announce = ready
      return if @previous.nil? || @stopping
      return finish_hot_restart(@boot_error) if @boot_error

      replace_all("hot restart") { |error| finish_hot_restart(error) }
    end

    def go_on
      @has_served ||= !@cluster.none_ready?
      @cluster.start_due { enter_child } unless @boot_error
      @rollout.step
      await_template if @candidate_pid && !@cluster.candidate?
      follow_orders unless busy?
      refork if !busy? && refork_due?
      recycle unless busy? || @boot_error
      announce if @announce && @cluster.ready? && !@rollout.active?
    end

    # Whether an order in progress delays further orders. A refork is itself delayed while the only
    # workers that could become the template are booting.
    def busy?
      @rollout.active? || @trial || @candidate_pid ||
        (@orders.first == :refork && @cluster.awaits_candidate?)
    end

    def announce
      announce, @announce = @announce, nil
      announce.call
      # After a hot restart, `finish` has notified systemd already.
      notifier.ready(status) unless @previous
    end

    def status = "#{@cluster.slots.count(&:ready?)} of #{@cluster.slots.size} workers serve"

    # Prepares a new worker process.
    def enter_child
      [@waker, @wakeup].each(&:close)
      Signals.restore
      Signal.trap("HUP") { @redirection.renew }
      # A stop signal before `restore` has run the supervisor's trap in this process.
      exit!(0) if @stopping
    end

    def follow_orders
      case @orders.shift
      when :reload then reload
      when :phased then restart_phased
      when :hot then restart_hot
      when :refork then refork
      when :more then resize(1)
      when :fewer then resize(-1)
      end
    end

    # Reads the configuration again, and replaces the workers if it has changed. The application's
    # code stays the same.
    def reload
      notifier.reloading
      renew_output
      changed = @launcher.reload
      return notifier.ready(status) unless changed

      forget_template
      @cluster.configuration = configuration
      @cluster.application = @launcher.renew_application unless configuration.preload
      @redirection = Redirection.new(configuration)
      replace_all("reload") { |error| finish("reload", error) }
    rescue Failure => e
      e.report
      finish("reload", "the configuration stays as it was")
    end

    # Reopens the log files in this process and in the workers.
    def renew_output
      @redirection.renew
      @cluster.signal_all("HUP") unless @redirection.idle?
    end

    # Replaces the workers with workers that run new code. Only a hot restart loads a preloaded
    # application again.
    def restart_phased
      return restart_hot if configuration.preload

      notifier.reloading
      @launcher.reload
      forget_template
      @cluster.application = @launcher.renew_application
      @cluster.configuration = configuration
      replace_all("phased restart") { |error| finish("phased restart", error) }
    rescue Failure => e
      e.report
      finish("phased restart", "the configuration cannot be read")
    end

    def restart_hot
      notifier.reloading
      say("hot restart: trying the command")
      @trial = @launcher.restart.start_trial(self)
      @trial_ends_at = now + @launcher.restart.trial_seconds(configuration)
      finish("hot restart", "the command does not start") unless @trial
    end

    # Becomes the next server if the trial has succeeded.
    def end_trial(status)
      @trial = nil
      return if @stopping
      return finish("hot restart", "the trial failed") unless status.success?

      @launcher.become_next(orders: @orders, **@cluster.inheritance) { @stopping }
    rescue Failure => e
      e.report
      finish("hot restart", "the next server did not start")
    end

    # Completes a hot restart, in the new server.
    def finish_hot_restart(error)
      finish("hot restart", error)
      @announce = nil if error
    end

    def replace_all(name, &ended)
      say("#{name}: replacing the workers one by one")
      roll_out(name, @cluster.slots, &ended)
    end

    def roll_out(name, slots, &ended)
      start = ->(slot) { @cluster.replace(slot) { enter_child } }
      @rollout.begin(name, slots, start: start, &ended)
      @rollout.step
    end

    # Makes a worker the template: the worker's successor takes over its connections, and the worker
    # stops serving. Then children of the template replace all workers.
    def refork
      @has_reforked = true
      slot = @cluster.choose_candidate or return say("refork: no worker can become the template")
      notifier.reloading
      say("refork: worker #{slot.index} becomes the template")
      @candidate_pid = slot.current.pid
      roll_out("refork", [slot]) do |error|
        next unless error

        @cluster.drop_candidate
        @candidate_pid = nil
        finish("refork", error)
      end
    end

    # Continues the refork when the candidate has become the template, or has refused.
    def await_template
      return if @rollout.active?

      pid, @candidate_pid = @candidate_pid, nil
      is_template = @cluster.template&.pid == pid
      return finish("refork", @cluster.objection || "the worker has ended") unless is_template

      replace_all("refork") { |error| end_refork(error) }
    end

    # Ends a refork. A template whose child does not boot is dropped, because later workers would
    # not boot either.
    def end_refork(error)
      @cluster.drop_template if error
      finish("refork", error)
    end

    # Whether the configured number of requests is reached. The number counts once for each version
    # of the code, because workers are warm after the first refork.
    def refork_due?
      limit = configuration.refork_after
      !@has_reforked && limit&.positive? && @cluster.requests_max >= limit
    end

    # Drops a template with outdated code or configuration.
    def forget_template
      @cluster.drop_template
      @has_reforked = false
    end

    # Replaces one worker that has reached a limit. The others keep serving.
    def recycle
      slot, limit = @cluster.slot_to_recycle
      return unless slot

      say("replacing worker #{slot.index} after #{limit}")
      roll_out("recycling", [slot]) { |error| finish("recycling", error) if error }
    end

    # Changes the number of workers until the next hot restart.
    def resize(difference)
      size = @cluster.slots.size + difference
      return say("the number of workers is now #{size}") if @cluster.resize(size)

      limit = difference.positive? ? "maximum" : "minimum"
      say("already at the #{limit} of #{@cluster.slots.size} worker#{"s" if difference.positive?}")
    end

    # Reports the end of a restart, or the error that has stopped it.
    def finish(name, error)
      text = error ? "#{name} stopped: #{error}; the current workers keep serving" : "#{name}: done"
      say(text)
      notifier.ready("#{status}; #{text}")
    end

    def say(text) = Signals.say(text)

    # Waits for a signal or a report, for at most a second if there is more to do.
    def wait_for_reports
      readable, = IO.select([@wakeup, *@cluster.report_pipes], nil, nil, wait_seconds)
      readable&.each do |io|
        io == @wakeup ? @wakeup.read_nonblock(256, exception: false) : @cluster.read_reports(io)
      end
    end

    def wait_seconds
      is_busy = @stopping || busy? || @orders.any? || !@cluster.settled?
      period = configuration.worker_check_seconds if configuration.watches_workers?
      [(ROLLOUT_END_SECONDS if @rollout.closing?), (1 if is_busy),
       (0 if @orders.any? && !busy?), period, notifier.period].compact.min
    end

    def reap
      while (pid, status = Process.wait2(-1, Process::WNOHANG))
        next end_trial(status) if pid == @trial

        @cluster.reap(pid, status) { |process, delay| report_end(process, delay) }
      end
    rescue Errno::ECHILD
      nil
    end

    # Logs the end of a worker, unless the supervisor had ordered it.
    def report_end(process, delay)
      return if @stopping || delay.nil?

      exit_if_none_boots(process) unless @has_served
      time = delay.zero? ? "now" : "in #{delay} s"
      time = "at the next restart" if @boot_error
      say("worker #{process.index} ended (#{describe(process.status)}); starting another #{time}")
    end

    def describe(status)
      status.signaled? ? "signal #{Signal.signame(status.termsig)}" : "exit #{status.exitstatus}"
    end

    # Exits if the application has never booted. The worker has logged the reason, and another
    # attempt would also fail. After a first success, a failure may be temporary, such as a database
    # that is down.
    def exit_if_none_boots(process)
      is_failure = !process.ready && process.status.exitstatus == Failure::STATUS
      return unless is_failure && @cluster.none_ready?

      @cluster.signal_all("KILL")
      exit(Failure::STATUS)
    end

    def kill_overdue
      @cluster.each_overdue do |process, reason|
        next if @stopping && !process.retired_at

        say("worker #{process.index} #{reason}")
        kill(process)
      end
      return unless @trial && now >= @trial_ends_at

      Process.kill("KILL", @trial)
    end

    # Kills a process. On PWR, a serving worker first logs the backtraces of its threads.
    def kill(process)
      if process.ready
        @cluster.signal(process, "PWR")
        sleep BACKTRACE_SECONDS
      end
      @cluster.signal(process, "KILL")
    end

    # Continues to stop: first notifies balancers, and gives them `drain_delay` to send their
    # requests elsewhere.
    def go_on_stopping
      unless @announced_end
        @announced_end = true
        notifier.stopping
        @launcher.announce_end
        Process.kill("KILL", @trial) if @trial
        @cluster.signal_all("URG") if configuration.drain_delay_seconds.positive?
      end
      @cluster.drop_template
      end_workers if @delay_over || now >= @stopping + configuration.drain_delay_seconds
    end

    # Sends TERM once, and KILL after the shutdown timeout.
    def end_workers
      @end_asked_at ||= now
      limit = @end_asked_at + configuration.worker_shutdown_seconds + Cluster::GRACE_SECONDS
      signal = now > limit ? "KILL" : "TERM"
      return if signal == @last_signal

      refuse_connections unless @last_signal
      @last_signal = signal
      @cluster.signal_all(signal)
    end

    # Refuses further connections. Workers close the listeners as they end, and this process does
    # too, in case the workers are busy.
    def refuse_connections
      @cluster.end_all
      @launcher.listeners.close_for_all
    end
  end
end
