# frozen_string_literal: true

require_relative "../application/database_pools"
require_relative "../server/server"
require_relative "../support/signals"

module Thruway
  # A server without workers, which serves in this process.
  class Single
    # `previous` is the `Inheritance` of the previous server, or nil.
    def initialize(launcher, previous = nil)
      @launcher = launcher
      @previous = previous
      @orders = launcher.orders
      @wakeups = Thread::Queue.new
    end

    # Yields when the server serves, and returns when it has stopped.
    def run
      # During the boot, a signal ends the process at once.
      Signals::STOPS.each { |name| Signal.trap(name, "DEFAULT") }
      return if @launcher.stopped?

      application = @launcher.notifier.while_alive { @launcher.application.load }
      DatabasePools.check(configuration)
      @server = Server.new(application, configuration, @launcher.listeners.descriptors)
      @server.engine.import(@previous.connections) if @previous&.connections
      Signals.trap_stop { stop }
      Signals.trap_orders { |order| take_order(order) }
      serving = serve
      yield
      @launcher.notifier.ready
      follow_orders
      @launcher.notifier.while_alive { serving.join }
      become_next if @next
    end

    # Stops the server after `drain_delay`, or at once on the second call. May be called from a
    # trap.
    def stop
      @launcher.notifier.stopping unless @stopping
      @launcher.announce_end
      end_trial
      return finish if @stopping || configuration.drain_delay_seconds.zero?

      @stopping = true
      @server.announce_end
      Thread.new do
        sleep configuration.drain_delay_seconds
        finish
      end
    end

    # The counters of the server, as JSON.
    def stats = @server.engine.stats

    def workers = []

    # Removes the responses that match `pattern` from the cache. Returns the number of removed
    # responses.
    def purge(pattern) = @server.engine.purge(pattern)

    private

    # Serves in a thread. Hooks of the start run in the main thread, and may send requests to the
    # server.
    def serve
      Thread.new do
        Thread.current.name = "thruway-server"
        # `join` raises the exception again.
        Thread.current.report_on_exception = false
        @server.run
      end
    end

    def configuration = @launcher.configuration

    def finish
      @stopping = true
      @server&.stop(closes_for_all: !@launcher.listeners.shared?)
      @launcher.listeners.close
    end

    # Takes an order. Logs are reopened at once, even during a trial.
    def take_order(order)
      return Thread.new { reload } if order == :reload

      Signals.queue(@orders, order)
      @wakeups << true
    end

    # Follows the orders one at a time. Orders that arrive when this process is about to become the
    # next server are left to the next server.
    def follow_orders
      @wakeups << true
      Thread.new do
        follow_next until @wakeups.pop.nil?
      end
    end

    def follow_next
      follow(@orders.shift) until @orders.empty? || @next
    rescue StandardError => e
      say("cannot follow the signal: #{e.message} (#{e.class})")
    end

    def follow(order)
      case order
      when :reload then reload
      when :refork then say("cannot refork: the server has no workers")
      when :more, :fewer then say("cannot change the number of workers: the server has none")
      else restart
      end
    end

    # Reopens the log files. A changed configuration takes effect only with a restart.
    def reload
      @launcher.notifier.reloading
      Redirection.new(configuration).renew
      if @launcher.reload(keep: true)
        say("the configuration has changed; send USR2 to restart with it")
      end
      @launcher.notifier.ready
    rescue Failure => e
      e.report
      @launcher.notifier.ready
    end

    # Restarts the server by a hot restart. Idle connections wait for the next server.
    def restart
      return if @stopping

      @launcher.notifier.reloading
      say("hot restart: trying the command")
      return unless trial_succeeds?

      @next = true
      @server.retire(configuration.drain_seconds)
    end

    # Runs a trial of the next server. Returns whether this server may give up its place.
    def trial_succeeds?
      @trial_pid = @launcher.restart.start_trial(self)
      limit = now + @launcher.restart.trial_seconds(configuration)
      status = wait_for(@trial_pid, limit) if @trial_pid
      return !@stopping if status&.success? || @stopping

      text = "hot restart stopped: the trial failed; the server keeps serving"
      say(text)
      @launcher.notifier.ready(text)
      false
    end

    def wait_for(pid, limit)
      loop do
        ended, status = Process.wait2(pid, Process::WNOHANG)
        return status if ended

        end_trial if now >= limit || @stopping
        sleep 0.02
      end
    ensure
      @trial_pid = nil
    end

    # Ends the trial. May be called from a trap.
    def end_trial
      Process.kill("KILL", @trial_pid) if @trial_pid
    rescue Errno::ESRCH
      nil
    end

    def become_next
      return if @stopping

      @launcher.become_next(orders: @orders, connections: @server.engine.export) { @stopping }
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    def say(text) = Signals.say(text)
  end
end
