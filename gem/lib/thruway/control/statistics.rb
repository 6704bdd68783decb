# frozen_string_literal: true

require_relative "../support/puma_version"
require_relative "../version"

module Thruway
  # The counters of a server, in the format of Puma's control application.
  module Statistics
    module_function

    # Converts the engine's `counters`. Puma lists the workers of a cluster, and puts the counters
    # of a single process at the top level.
    def as_puma(counters, started_at:, clustered:)
      workers = counters.fetch("workers")
      # Without a cache and an agent for certificates, the counters are exactly Puma's.
      more = counters.slice("cache", "certificates")
      return { **single(workers.first || {}, started_at), **more } unless clustered

      { started_at: time(started_at), workers: workers.size, phase: 0,
        booted_workers: counters.fetch("booted_workers"),
        old_workers: workers.count { |worker| worker["draining"] },
        worker_status: workers.map { |worker| status(worker) }, versions: versions, **more }
    end

    def single(worker, started_at)
      { started_at: time(started_at), **load(worker), versions: versions }
    end

    def status(worker)
      { started_at: time(Time.at(worker["started_at"])), pid: worker["pid"],
        index: worker["index"], phase: 0, booted: worker["booted"],
        last_checkin: time(Time.now), last_status: load(worker) }
    end

    # The pool's capacity is the number of free threads, including threads that have not started.
    def load(worker)
      threads, busy, waiting = worker.values_at("threads", "busy_threads", "waiting").map(&:to_i)
      { backlog: waiting, running: threads, pool_capacity: [threads - busy, 0].max,
        busy_threads: busy + waiting, max_threads: threads,
        **worker.slice("computing_requests", "waiting_requests", "streaming_requests"),
        requests_count: worker["requests"].to_i }
    end

    def time(time)
      time.utc.strftime("%FT%TZ")
    end

    def versions
      { thruway: VERSION, puma: PUMA_VERSION,
        ruby: { engine: RUBY_ENGINE, version: RUBY_VERSION, patchlevel: RUBY_PATCHLEVEL } }
    end
  end
end
