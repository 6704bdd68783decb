# frozen_string_literal: true

module Thruway
  # The descriptors and facts that a server hands over in a hot restart to the next program in its
  # process. An environment variable carries them.
  class Inheritance
    VARIABLE = "THRUWAY_INHERITANCE"

    # The version of the variable's format. A variable of another version is ignored.
    VERSION = 1

    # Returns the inheritance of this process, at the first call only; nil if there is none.
    def self.take
      text = ENV.delete(VARIABLE) or return
      data = Marshal.load(text[/:(.*)\z/m, 1].to_s.unpack1("m0"))
      new(data).tap(&:close_on_exec) if data.is_a?(Hash) && data[:version] == VERSION
    rescue ArgumentError, TypeError
      nil
    end

    # Returns the variable and the descriptors to keep open. The value begins with the number of
    # this process. A program that this process starts has another number, and ignores the variable.
    def self.leave(**data)
      data = { version: VERSION, **data }
      text = [Marshal.dump(data)].pack("m0")
      [{ VARIABLE => "#{Process.pid}:#{text}" }, descriptors(data)]
    end

    def self.descriptors(data)
      numbers = [*data[:alive], *data.fetch(:handover, [])[1..], data[:connections],
                 *data[:listeners].values.flatten.grep(Integer)]
      numbers.compact.to_h { |number| [number, number] }
    end

    def initialize(data)
      @data = data
    end

    # The listening sockets for each configured URI, in the form of `Listeners#sockets`.
    def listeners = @data.fetch(:listeners)

    # Closes the descriptors in programs that this process starts.
    def close_on_exec
      self.class.descriptors(@data).each_key do |number|
        io = IO.for_fd(number)
        io.autoclose = false
        io.close_on_exec = true
      end
    end

    # Orders that the previous server has received and not followed.
    def orders = @data.fetch(:orders, [])

    # The idle connections of a server without workers.
    def connections = @data[:connections]

    # The process numbers of the workers, each with the index of its slot, or nil for a retiring
    # worker.
    def workers = @data.fetch(:workers)

    # The worker table's part; see `WorkerTable#handover`.
    def handover = @data[:handover]

    # The pipe that workers watch: it is closed when their supervisor has ended.
    def alive
      @data.fetch(:alive).zip(%w[r w]).map do |number, mode|
        IO.for_fd(number, mode).tap { |io| io.close_on_exec = true }
      end
    end
  end
end
