# frozen_string_literal: true

module Thruway
  # What a server leaves to the program that its process becomes in a hot restart: descriptors, and
  # what they are.
  class Inheritance
    VARIABLE = "THRUWAY_INHERITANCE"

    # The form of the variable; another one is not taken.
    VERSION = 1

    # Takes what was left here, once; nil if there is nothing.
    def self.take
      text = ENV.delete(VARIABLE) or return
      data = Marshal.load(text[/:(.*)\z/m, 1].to_s.unpack1("m0"))
      new(data).tap(&:close_on_exec) if data.is_a?(Hash) && data[:version] == VERSION
    rescue ArgumentError, TypeError
      nil
    end

    # The variable, which begins with this process's number, and the descriptors that stay open.
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

    # Of each address as it was asked for: descriptors, each with the address as it is shown.
    def listeners = @data.fetch(:listeners)

    # What this process starts is not to have them.
    def close_on_exec
      self.class.descriptors(@data).each_key do |number|
        io = IO.for_fd(number)
        io.autoclose = false
        io.close_on_exec = true
      end
    end

    # What the server before this one was asked for, and has not followed.
    def orders = @data.fetch(:orders, [])

    # Connections of a server that was one process.
    def connections = @data[:connections]

    # Whether workers serve meanwhile.
    def workers? = @data.key?(:workers)

    # Process numbers, and the place of each; nil if it is about to end.
    def workers = @data.fetch(:workers)

    def handover = @data[:handover]

    # The pipe whose end tells workers that their supervisor is gone.
    def alive
      @data.fetch(:alive).zip(%w[r w]).map do |number, mode|
        IO.for_fd(number, mode).tap { |io| io.close_on_exec = true }
      end
    end
  end
end
