# frozen_string_literal: true

module Thruway
  # A worker process, as the supervisor sees it. `table_index` is the index of the process's entry
  # in the worker table, and `orders` a socket to the process. Workers that a hot restart has
  # inherited from the previous server have neither. `kill_reason` is the reason why the supervisor
  # kills the process.
  WorkerProcess = Struct.new(:index, :table_index, :pid, :started_at, :ready, :retired_at,
                             :last_seen_at, :status, :requests, :kilobytes, :kill_reason, :orders,
                             :is_forked_from_template, keyword_init: true) do
    def ended? = !status.nil?
  end

  # The position of a worker in the cluster: the current process, the successor that boots to
  # replace it, and the earliest time at which an empty slot is filled again.
  class WorkerSlot
    # A worker that ends within this time after its start counts as a failure. Each further failure
    # doubles the delay before the next start.
    SHORT_LIFE_SECONDS = 10
    DELAY_SECONDS_MAX = 16

    attr_reader :index
    attr_accessor :current, :successor, :due_at

    def initialize(index)
      @index = index
      @failures = 0
      @due_at = 0
    end

    def ready? = !current.nil? && current.ready

    def processes = [current, successor].compact

    # Makes the successor the current process. Returns the replaced process.
    def promote
      old, @current, @successor = @current, @successor, nil
      old
    end

    # Empties the slot after the end of its process. Returns the seconds until the slot is filled
    # again.
    def vacate(now)
      short = now - @current.started_at < SHORT_LIFE_SECONDS
      @failures = short ? @failures + 1 : 0
      @current = nil
      delay = @failures < 2 ? 0 : [2**(@failures - 2), DELAY_SECONDS_MAX].min
      @due_at = now + delay
      delay
    end
  end
end
