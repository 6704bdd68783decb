# frozen_string_literal: true

# Stands for `ARGV` while a template boots, and reports when the boot looks at the arguments: the
# template then serves commands with the same arguments only. `preload_template.rb` loads this file
# into its own anonymous module.
#
# The class is not an Array, because `[*ARGV]` and `%w[a] & ARGV` read the elements of an Array
# without any call that could be reported. Ruby calls `to_a` or `to_ary` of any other object. A boot
# that keeps a reference to the object sees, in each child, the arguments of the child's command.
class WatchedArguments < BasicObject
  # Methods that reveal nothing about the elements. OptionParser extends ARGV when it is loaded.
  UNREPORTED = %i[extend object_id].freeze

  def initialize(arguments, &report)
    @arguments = arguments
    @report = report
  end

  def to_a = @arguments.tap(&@report)
  alias to_ary to_a

  def ==(other) = to_a == other
  def !=(other) = to_a != other
  def equal?(other) = super || @arguments.equal?(other)
  # Ruby calls this method before it converts an object to a String.
  def respond_to?(...) = to_a.respond_to?(...)
  def respond_to_missing?(...) = to_a.respond_to?(...)

  def method_missing(name, ...)
    @report.call unless UNREPORTED.include?(name)
    @arguments.public_send(name, ...)
  end
end
