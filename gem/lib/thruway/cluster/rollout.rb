# frozen_string_literal: true

module Thruway
  # Replaces the workers of a cluster one by one. A worker retires when its successor serves. If a
  # successor does not boot, the rollout stops and the remaining workers keep serving.
  class Rollout
    # The name of the rollout in progress; nil if there is none.
    attr_reader :name

    # The block returns whether a replaced worker still accepts connections.
    def initialize(&old_accepts)
      @old_accepts = old_accepts
      @pending = []
    end

    def active? = !@name.nil?

    # Whether all successors serve, so that the rollout ends as soon as no replaced worker accepts.
    def closing? = active? && @pending.empty? && (@successor.nil? || @successor.ready)

    # Begins to replace the processes in `slots`. `start` starts a successor for a slot. At the end,
    # the block is called with nil, or with the reason why the rollout stopped.
    def begin(name, slots, start:, &ended)
      @name = name
      @pending = slots.dup
      @start = start
      @ended = ended
      @successor = nil
    end

    # Advances as far as possible without waiting.
    def step
      while active?
        return finish("worker #{@successor.index} #{failure(@successor)}") if @successor&.ended?
        return if @successor && !@successor.ready

        slot = @pending.first or return (finish(nil) unless @old_accepts.call)
        # nil means that the worker table is full. The next step tries again.
        @successor = @start.call(slot) or return
        @pending.shift
      end
    end

    private

    def finish(error)
      ended, @name, @pending, @successor = @ended, nil, [], nil
      ended.call(error)
    end

    def failure(process)
      return process.kill_reason if process.kill_reason

      status = process.status
      return "was killed by signal #{Signal.signame(status.termsig)}" if status.signaled?

      "did not boot (exit #{status.exitstatus})"
    end
  end
end
