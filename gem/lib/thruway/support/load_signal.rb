# frozen_string_literal: true

require_relative "json"

module Thruway
  # How busy the server is, for balancers that send less to a busy one. See
  # docs/howto/balance.md.
  class LoadSignal
    # Between two looks, and how long the past counts.
    LOOK_SECONDS = 0.1
    MEMORY_SECONDS = 1.0

    # Envoy reads it, as gRPC's load reports have it (ORCA).
    FIELD = "endpoint-load-metrics"

    # From 0, idle, to 1: all threads are busy, or as many requests wait.
    attr_reader :utilization

    def initialize
      @utilization = 0.0
    end

    # Looks now and then, in a thread. The block gives what the server has counted, as JSON.
    def start
      Thread.new do
        Thread.current.name = "thruway-load"
        loop do
          note(Json.parse(yield))
          sleep LOOK_SECONDS
        end
      end
    end

    # Takes in what the server has counted.
    def note(counted)
      workers = counted.fetch("workers").select { |one| one["booted"] && !one["draining"] }
      threads = workers.sum { |one| one["threads"] }
      busy = workers.sum { |one| one["busy_threads"] + one["waiting"] }
      now = threads.zero? ? 1.0 : [busy.fdiv(threads), 1.0].min
      @utilization += (now - @utilization) * (LOOK_SECONDS / MEMORY_SECONDS)
    end

    # What HAProxy's agent check reads: the part of its weight that this server wants to have.
    def weight_percent = [(100 * (1 - @utilization)).round, 1].max

    # The value of the field.
    def report = format('JSON {"application_utilization":%.2f}', @utilization)
  end
end
