# frozen_string_literal: true

require_relative "../version"

module Thruway
  # What a server has counted, with the names that Puma's control application gives it.
  module Statistics
    module_function

    # `counted` is what the engine says. Puma has workers in a list, and one process without.
    def as_puma(counted, started:, clustered:)
      workers = counted.fetch("workers")
      return single(workers.first || {}, started) unless clustered

      { started_at: time(started), workers: workers.size, phase: 0,
        booted_workers: counted.fetch("booted_workers"),
        old_workers: workers.count { |worker| worker["draining"] },
        worker_status: workers.map { |worker| status(worker) }, versions: versions }
    end

    def single(worker, started)
      { started_at: time(started), **load(worker), versions: versions }
    end

    def status(worker)
      { started_at: time(Time.at(worker["started_at"])), pid: worker["pid"],
        index: worker["index"], phase: 0, booted: worker["booted"],
        last_checkin: time(Time.now), last_status: load(worker) }
    end

    # All threads run from the start, so the threads that are free are the capacity.
    def load(worker)
      threads, busy, waiting = worker.values_at("threads", "busy_threads", "waiting").map(&:to_i)
      { backlog: waiting, running: threads, pool_capacity: [threads - busy, 0].max,
        busy_threads: busy + waiting, max_threads: threads,
        requests_count: worker["requests"].to_i }
    end

    def time(time)
      time.utc.strftime("%FT%TZ")
    end

    def versions
      { thruway: VERSION,
        ruby: { engine: RUBY_ENGINE, version: RUBY_VERSION, patchlevel: RUBY_PATCHLEVEL } }
    end
  end
end
