# frozen_string_literal: true

require_relative "json"

module Thruway
  # Measures the load of the server, for balancers that send less to a busy server. See
  # docs/howto/balance.md.
  class LoadSignal
    # The interval between two samples, and the time constant of their moving average.
    SAMPLE_SECONDS = 0.1
    AVERAGE_SECONDS = 1.0

    # The field of a load report in the format of ORCA, which Envoy reads.
    FIELD = "endpoint-load-metrics"

    # The average of busy threads and waiting requests per thread, from 0 to at most 1.
    attr_reader :utilization

    def initialize
      @utilization = 0.0
    end

    # Starts a thread that takes the samples. The block returns the server's counters as JSON.
    def start
      Thread.new do
        Thread.current.name = "thruway-load"
        loop do
          add(Json.parse(yield))
          sleep SAMPLE_SECONDS
        end
      end
    end

    # Adds a sample.
    def add(counters)
      workers = counters.fetch("workers").select { |one| one["booted"] && !one["draining"] }
      threads = workers.sum { |one| one["threads"] }
      busy = workers.sum { |one| one["busy_threads"] + one["waiting"] }
      now = threads.zero? ? 1.0 : [busy.fdiv(threads), 1.0].min
      @utilization += (now - @utilization) * (SAMPLE_SECONDS / AVERAGE_SECONDS)
    end

    # The share of its configured weight that the server requests from HAProxy.
    def weight_percent = [(100 * (1 - @utilization)).round, 1].max

    # The value of the field `FIELD`.
    def report = format('JSON {"application_utilization":%.2f}', @utilization)
  end
end
