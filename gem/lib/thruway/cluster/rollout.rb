# frozen_string_literal: true

module Thruway
  # Replaces the workers of a cluster one by one. A worker goes when its successor serves. If a
  # successor does not boot, the rollout stops, and the other workers stay.
  class Rollout
    # The name of what is under way, or nil.
    attr_reader :name

    def initialize(pool)
      @pool = pool
      @pending = []
    end

    def active? = !@name.nil?

    # Begins to replace what is in `places`. `start` starts a successor; `ended` is called with nil,
    # or with why it has stopped.
    def begin(name, places, start:, &ended)
      @name = name
      @pending = places.dup
      @start = start
      @ended = ended
      @successor = nil
    end

    # Goes on as far as that is possible now.
    def step
      while active?
        return finish("worker #{@successor.index} #{how(@successor)}") if @successor&.ended?
        return if @successor && !@successor.ready

        place = @pending.first or return finish(nil)
        # Without room for another process it is tried again.
        @successor = @start.call(place) or return
        @pending.shift
      end
    end

    private

    def finish(error)
      ended, @name, @pending, @successor = @ended, nil, [], nil
      ended.call(error)
    end

    def how(process)
      return process.why if process.why

      status = process.status
      return "was ended by signal #{Signal.signame(status.termsig)}" if status.signaled?

      "did not boot (exit #{status.exitstatus})"
    end
  end
end
