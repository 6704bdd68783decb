# frozen_string_literal: true

require_relative "../application/runtime"
require_relative "../support/failure"
require_relative "../support/hooks"
require_relative "../support/redirection"
require_relative "../support/signals"
require_relative "cluster"
require_relative "rollout"

module Thruway
  # Several processes that serve the same listeners, and their supervisor.
  class Cluster
    # How long a worker that hangs has to say where.
    LAST_WORDS_SECONDS = 0.5

    # `before` is what the server before this one has left, or nil.
    def initialize(launcher, before = nil)
      @launcher = launcher
      @before = before
      @has_served = !before.nil?
      @orders = launcher.orders
      @redirection = Redirection.new(configuration)
    end

    # Yields when every worker serves; returns when all have ended.
    def run(&ready)
      @wakeup, @waker = IO.pipe
      @pool = WorkerPool.new(configuration, @launcher.application, @launcher.listeners, @before)
      @rollout = Rollout.new(@pool)
      trap_signals if @before
      stop if @launcher.stopped?
      boot unless @stopping
      trap_signals
      supervise(&ready)
    ensure
      # A trap may write until the end: a pipe without a reader would raise.
      [@waker, @wakeup].each { |io| io&.close }
      @pool&.close
    end

    # Lets the workers end in good order. It may be called from a trap.
    def stop
      @delay_over = true if @stopping
      @stopping ||= now
      wake
    end

    # What all workers have counted, as JSON.
    def stats = @pool.fleet.stats

    private

    def configuration = @launcher.configuration

    def notify = @launcher.notify

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # The application that does not boot ends the server, but for workers that serve already.
    def boot
      notify.while_alive { @launcher.application.load } if configuration.preload
      Hooks.run(configuration, :before_fork)
      Runtime.warm_up if configuration.preload && configuration.warm_up
    rescue Failure => e
      raise unless @before

      e.report
      @stale = "the application does not boot"
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

    # Where a trap calls it nothing is raised: while a process exits, also an error that is rescued
    # may cost it its status. Another thread may meet the end of the pipe.
    def wake
      @waker.write_nonblock(".", exception: false) unless @waker.closed?
    rescue SystemCallError, IOError
      nil
    end

    def supervise(&ready)
      begin_service(&ready)
      until @stopping && @pool.empty?
        @stopping ? go_on_stopping : go_on
        wait_for_news
        reap
        end_late
        notify.alive
      end
    end

    # New workers take the place of those that the server before this one has left.
    def begin_service(&ready)
      @announce = ready
      return if @before.nil? || @stopping
      return restarted(@stale) if @stale

      replace_all("hot restart") { |error| restarted(error) }
    end

    def go_on
      @has_served ||= !@pool.none_ready?
      @pool.start_due { enter_child } unless @stale
      @rollout.step
      end_nomination if @nominated && !@pool.candidate?
      follow_orders unless busy?
      refork if !busy? && refork_due?
      recycle unless busy? || @stale
      announce if @announce && @pool.ready? && !@rollout.active?
    end

    # Whether there is something that others wait for.
    def busy? = @rollout.active? || @trial || @nominated

    def announce
      announce, @announce = @announce, nil
      announce.call
      # The end of a restart has been told.
      notify.ready(status) unless @before
    end

    def status = "#{@pool.places.count(&:ready?)} of #{@pool.places.size} workers serve"

    # In a new process.
    def enter_child
      [@waker, @wakeup].each(&:close)
      Signals.restore
      Signal.trap("HUP") { @redirection.renew }
      # A signal that came before was taken as the master takes it.
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

    # What holds from now on, if it differs: workers are replaced, by those with the same code.
    def reload
      notify.reloading
      renew_output
      changed = @launcher.reload
      return notify.ready(status) unless changed

      forget_template
      @pool.configuration = configuration
      @pool.application = @launcher.renew_application unless configuration.preload
      @redirection = Redirection.new(configuration)
      replace_all("reload") { |error| over("reload", error) }
    rescue Failure => e
      e.report
      over("reload", "the configuration stays as it was")
    end

    # Here and in the workers, which hold the same files.
    def renew_output
      @redirection.renew
      @pool.tell_all("HUP") unless @redirection.idle?
    end

    # The code is loaded in each worker, or in the next server.
    def restart_phased
      return restart_hot if configuration.preload

      notify.reloading
      @launcher.reload
      forget_template
      @pool.application = @launcher.renew_application
      @pool.configuration = configuration
      replace_all("phased restart") { |error| over("phased restart", error) }
    rescue Failure => e
      e.report
      over("phased restart", "the configuration cannot be read")
    end

    def restart_hot
      notify.reloading
      say("hot restart: the command is tried")
      @trial = @launcher.restart.try(self)
      @trial_ends = now + @launcher.restart.trial_seconds(configuration)
      over("hot restart", "the command does not start") unless @trial
    end

    # The trial has ended.
    def end_trial(status)
      @trial = nil
      return if @stopping
      return over("hot restart", "the trial failed") unless status.success?

      @launcher.become_next(orders: @orders, **@pool.inheritance) { @stopping }
    rescue Failure => e
      e.report
      over("hot restart", "the next server did not start")
    end

    def restarted(error)
      over("hot restart", error)
      @announce = nil if error
    end

    def replace_all(name, &ended)
      say("#{name}: workers are replaced, one by one")
      roll_out(name, @pool.places, &ended)
    end

    def roll_out(name, places, &ended)
      start = ->(place) { @pool.replace(place) { enter_child } }
      @rollout.begin(name, places, start: start, &ended)
      @rollout.step
    end

    # A worker gets a successor, hands its connections over, and becomes the template. Then all
    # workers are replaced by its children.
    def refork
      @has_reforked = true
      place = @pool.nominate or return say("refork: no worker can be the template")
      notify.reloading
      say("refork: worker #{place.index} becomes the template")
      @nominated = place.current.pid
      roll_out("refork", [place]) do |error|
        next unless error

        @pool.forget_candidate
        @nominated = nil
        over("refork", error)
      end
    end

    # The worker has become the template, or cannot.
    def end_nomination
      return if @rollout.active?

      pid, @nominated = @nominated, nil
      is_template = @pool.template&.pid == pid
      return over("refork", @pool.objection || "the worker has ended") unless is_template

      replace_all("refork") { |error| end_refork(error) }
    end

    # Otherwise each worker that ends later would have a successor that fails as well.
    def end_refork(error)
      @pool.drop_template if error
      over("refork", error)
    end

    # Once for each version of the code: after that, workers are warm.
    def refork_due?
      limit = configuration.refork_after
      !@has_reforked && limit&.positive? && @pool.requests_max >= limit
    end

    # It has code, or a configuration, that does not hold any more.
    def forget_template
      @pool.drop_template
      @has_reforked = false
    end

    # One at a time, so that the others go on.
    def recycle
      place, why = @pool.worn
      return unless place

      say("worker #{place.index} is replaced #{why}")
      roll_out("recycling", [place]) { |error| over("recycling", error) if error }
    end

    # One worker more or less, until the next hot restart.
    def resize(difference)
      changed = @pool.resize(@pool.places.size + difference)
      reason = " and cannot be #{difference.positive? ? "more" : "fewer"}" unless changed
      say("#{@pool.places.size} workers are wanted#{reason}")
    end

    # A restart has ended, or stopped with an error.
    def over(name, error)
      text = error ? "#{name} stopped: #{error}; the workers that serve stay" : "#{name}: done"
      say(text)
      notify.ready("#{status}; #{text}")
    end

    def say(text) = Signals.say(text)

    # Waits for a signal or for a word of a worker; a second at most if there is more to do.
    def wait_for_news
      readable, = IO.select([@wakeup, *@pool.reports], nil, nil, wait_seconds)
      readable&.each do |io|
        io == @wakeup ? @wakeup.read_nonblock(256, exception: false) : @pool.hear(io)
      end
    end

    def wait_seconds
      is_busy = @stopping || busy? || @orders.any? || !@pool.settled?
      period = configuration.worker_check_seconds if configuration.watches_workers?
      [(1 if is_busy), (0 if @orders.any? && !busy?), period,
       notify.period].compact.min
    end

    def reap
      while (pid, status = Process.wait2(-1, Process::WNOHANG))
        next end_trial(status) if pid == @trial

        @pool.reap(pid, status) { |process, delay| lament(process, delay) }
      end
    rescue Errno::ECHILD
      nil
    end

    # Tells of a worker that nothing had asked to end.
    def lament(process, delay)
      return if @stopping || delay.nil?

      fail_if_none_serves(process) unless @has_served
      start = delay.zero? ? "now" : "in #{delay} s"
      start = "when there is a restart" if @stale
      say("worker #{process.index} ended (#{describe(process.status)}); another starts #{start}")
    end

    def describe(status)
      status.signaled? ? "signal #{Signal.signame(status.termsig)}" : "exit #{status.exitstatus}"
    end

    # The application does not boot: it has said why, and will not tomorrow. Once it has, the next
    # worker may, when a database is back.
    def fail_if_none_serves(process)
      is_failure = !process.ready && process.status.exitstatus == Failure::STATUS
      return unless is_failure && @pool.none_ready?

      @pool.tell_all("KILL")
      exit(Failure::STATUS)
    end

    def end_late
      @pool.end_late do |process, why|
        next if @stopping && !process.asked

        say("worker #{process.index} #{why}")
        end_hard(process)
      end
      return unless @trial && now >= @trial_ends

      Process.kill("KILL", @trial)
    end

    # What its threads are in the middle of stands in the log before.
    def end_hard(process)
      if process.ready
        @pool.tell(process, "PWR")
        sleep LAST_WORDS_SECONDS
      end
      @pool.tell(process, "KILL")
    end

    # First balancers are told, and have time to look elsewhere.
    def go_on_stopping
      unless @announced_end
        @announced_end = true
        notify.stopping
        @launcher.announce_end
        Process.kill("KILL", @trial) if @trial
        @pool.tell_all("URG") if configuration.drain_delay_seconds.positive?
      end
      @pool.drop_template
      end_workers if @delay_over || now >= @stopping + configuration.drain_delay_seconds
    end

    # Asks once, and insists when the time is over.
    def end_workers
      @asked_at ||= now
      limit = @asked_at + configuration.worker_shutdown_seconds + WorkerPool::GRACE_SECONDS
      signal = now > limit ? "KILL" : "TERM"
      return if signal == @last_signal

      refuse_connections unless @last_signal
      @last_signal = signal
      @pool.tell_all(signal)
    end

    # If the workers are too busy to close the listeners, it happens here.
    def refuse_connections
      @pool.end_all
      @launcher.listeners.close_for_all
    end
  end
end
