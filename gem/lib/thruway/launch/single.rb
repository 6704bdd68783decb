# frozen_string_literal: true

require_relative "../server/server"
require_relative "../support/signals"

module Thruway
  # A server in this very process.
  class Single
    # `before` is what the server before this one has left, or nil.
    def initialize(launcher, before = nil)
      @launcher = launcher
      @before = before
      @orders = launcher.orders
      @news = Thread::Queue.new
    end

    # Yields when it serves; returns when it was stopped.
    def run
      # A boot ends at once then, whatever it does.
      Signals::STOPS.each { |name| Signal.trap(name, "DEFAULT") }
      return if @launcher.stopped?

      application = @launcher.notify.while_alive { @launcher.application.load }
      @server = Server.new(application, configuration, @launcher.listeners.descriptors)
      @server.engine.import(@before.connections) if @before&.connections
      Signals.trap_stop { stop }
      Signals.trap_orders { |order| take_order(order) }
      yield
      @launcher.notify.ready
      follow_orders
      @launcher.notify.while_alive { @server.run }
      become_next if @next
    end

    # It may be called from a trap.
    def stop
      @launcher.notify.stopping unless @stopping
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

    # What is counted, as JSON.
    def stats = @server.engine.stats

    private

    def configuration = @launcher.configuration

    def finish
      @stopping = true
      @server&.stop(closes_for_all: !@launcher.listeners.shared?)
      @launcher.listeners.close
    end

    # Logs do not wait for a trial.
    def take_order(order)
      return Thread.new { reload } if order == :reload

      Signals.queue(@orders, order)
      @news << true
    end

    # One at a time. What comes when this process is about to end is left to the next one.
    def follow_orders
      @news << true
      Thread.new do
        follow_next until @news.pop.nil?
      end
    end

    def follow_next
      follow(@orders.shift) until @orders.empty? || @next
    rescue StandardError => e
      say("an order was not followed: #{e.message} (#{e.class})")
    end

    def follow(order)
      case order
      when :reload then reload
      when :refork then say("there are no workers to refork")
      when :more, :fewer then say("there are no workers: the number stays")
      else restart
      end
    end

    # Files are opened again; another configuration takes a restart.
    def reload
      @launcher.notify.reloading
      Redirection.new(configuration).renew
      say("the configuration has changed; USR2 restarts with it") if @launcher.reload(keep: true)
      @launcher.notify.ready
    rescue Failure => e
      e.report
      @launcher.notify.ready
    end

    # Connections that are between two requests wait for the next server.
    def restart
      return if @stopping

      @launcher.notify.reloading
      say("hot restart: the command is tried")
      return unless try

      @next = true
      @server.retire(configuration.drain_seconds)
    end

    def try
      @trial_pid = @launcher.restart.try(self)
      limit = now + @launcher.restart.trial_seconds(configuration)
      status = wait_for(@trial_pid, limit) if @trial_pid
      return !@stopping if status&.success? || @stopping

      text = "hot restart stopped: the trial failed; the server stays as it was"
      say(text)
      @launcher.notify.ready(text)
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

    # It may be called from a trap.
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
