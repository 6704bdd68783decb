# frozen_string_literal: true

require_relative "failure"
require_relative "redirection"
require_relative "runtime"
require_relative "signals"
require_relative "worker"

module Thruway
  # Several processes that serve the same listeners, and their supervisor.
  class Cluster
    # A worker that ends so soon after its start is started again later and later.
    SHORT_LIFE_SECONDS = 10
    DELAY_SECONDS_MAX = 16

    # What a worker has beyond its time to end before it is killed.
    GRACE_SECONDS = 5

    # What `after_worker_shutdown` is told.
    Ended = Struct.new(:index, :pid, :process_status)

    # One worker's place: the process that fills it, and when it may be filled again.
    Place = Struct.new(:index, :pid, :started, :ready, :failures, :due, :told)

    def initialize(configuration, application, listeners)
      @configuration = configuration
      @application = application
      @listeners = listeners
      @reports = {}
      @redirection = Redirection.new(configuration)
      @places = Array.new(configuration.workers) { |index| Place.new(index, nil, 0, false, 0, 0) }
    end

    # Yields when every worker serves; returns when all have ended.
    def run
      @alive, @master_alive = IO.pipe
      @wakeup, @waker = IO.pipe
      @fleet = Fleet.create(@places.size)
      @application.load if @configuration.preload
      @configuration.run_hooks(:before_fork)
      Runtime.warm_up if @configuration.preload && @configuration.warm_up
      trap_signals
      supervise { yield }
    ensure
      [@alive, @master_alive, @wakeup, @waker].each { |io| io&.close }
    end

    # Lets the workers end in good order. It may be called from a trap.
    def stop
      @stopping ||= now
      wake
    end

    # What all workers have counted, as JSON.
    def stats
      @fleet.stats
    end

    private

    def trap_signals
      Signals.trap_stop { stop }
      Signals.trap_others { renew_output }
      Signal.trap("CHLD") { wake }
    end

    # Here and in the workers, which hold the same files.
    def renew_output
      @redirection.renew
      running.each { |place| tell(place, "HUP") } unless @redirection.idle?
    end

    def tell(place, signal)
      Process.kill(signal, place.pid)
    rescue Errno::ESRCH
      nil
    end

    def wake
      @waker.write_nonblock(".")
    rescue IO::WaitWritable, IOError
      nil
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def supervise
      announced = false
      until @stopping && running.empty?
        @stopping ? end_workers : start_workers
        wait_for_news
        reap
        end_slow_starters unless @stopping
        if !announced && @places.all?(&:ready)
          announced = true
          yield
        end
      end
    end

    def running
      @places.select(&:pid)
    end

    def start_workers
      @places.each do |place|
        break if @stopping

        start(place) if place.pid.nil? && place.due <= now
      end
    end

    def start(place)
      @configuration.run_hooks(:before_worker_fork, place.index)
      hears, says = IO.pipe
      place.pid = fork { work(place.index, hears, says) }
      says.close
      place.started = now
      place.ready = place.told = false
      @reports[hears] = place
      @configuration.run_hooks(:after_worker_fork, place.index)
    end

    # What the new process does.
    def work(index, hears, says)
      [hears, @master_alive, @wakeup, @waker, *@reports.keys].each(&:close)
      Signals.trap_others { @redirection.renew }
      Signals.restore
      # A signal that came before was taken as the master takes it.
      exit!(0) if @stopping
      worker = Worker.new(index, @configuration, @application, @listeners.descriptors, @fleet)
      exit!(worker.run(alive: @alive, says: says))
    end

    # Waits for a signal or for a worker that serves; a second at most if there is more to do.
    def wait_for_news
      seconds = @stopping || !@places.all?(&:ready) ? 1 : nil
      readable, = IO.select([@wakeup, *@reports.keys], nil, nil, seconds)
      readable&.each do |io|
        text = io.read_nonblock(256, exception: false)
        hear_from(io, text) unless io == @wakeup
      end
    end

    def hear_from(io, text)
      place = @reports.delete(io)
      place.ready = text == "r"
      io.close
    end

    def reap
      while (pid, status = Process.wait2(-1, Process::WNOHANG))
        place = @places.find { |candidate| candidate.pid == pid }
        bury(place, status) if place
      end
    rescue Errno::ECHILD
      nil
    end

    def bury(place, status)
      @configuration.run_hooks(:after_worker_shutdown,
                               Ended.new(place.index, place.pid, status))
      place.pid = nil
      @fleet.bury(place.index)
      return if @stopping

      never_served = !place.ready
      place.ready = false
      fail_if_none_serves(status) if never_served
      short = now - place.started < SHORT_LIFE_SECONDS
      place.failures = short ? place.failures + 1 : 0
      delay = short ? [2**(place.failures - 2), DELAY_SECONDS_MAX].min : 0
      delay = 0 if place.failures < 2
      place.due = now + delay
      warn "thruway: worker #{place.index} ended (#{describe(status)}); another starts " \
           "#{delay.zero? ? "now" : "in #{delay} s"}"
    end

    def describe(status)
      status.signaled? ? "signal #{Signal.signame(status.termsig)}" : "exit #{status.exitstatus}"
    end

    # The application does not boot: it has said why, and will not tomorrow.
    def fail_if_none_serves(status)
      return unless status.exitstatus == Failure::STATUS && @places.none?(&:ready)

      running.each { |place| Process.kill("KILL", place.pid) }
      throw :exit, Failure::STATUS
    end

    # What takes longer to boot than it may starts anew.
    def end_slow_starters
      seconds = @configuration.worker_boot_seconds
      running.each do |place|
        next if place.ready || now < place.started + seconds || place.told

        place.told = true
        warn "thruway: worker #{place.index} has not booted within #{seconds.to_i} s"
        tell(place, "KILL")
      end
    end

    # Asks once, and insists when the time is over.
    def end_workers
      limit = @stopping + @configuration.worker_shutdown_seconds + GRACE_SECONDS
      signal = now > limit ? "KILL" : "TERM"
      return if signal == @last_signal

      refuse_connections unless @last_signal
      @last_signal = signal
      running.each { |place| tell(place, signal) }
    end

    # The workers see the pipe end, take the connections that wait, and close the listeners for all;
    # if they are too busy for that, it happens here.
    def refuse_connections
      @master_alive.close
      @listeners.close_for_all
    end
  end
end
