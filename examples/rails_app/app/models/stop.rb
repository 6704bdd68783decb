# frozen_string_literal: true

# A place beside the road.
class Stop < ApplicationRecord
  has_many :notes, dependent: :destroy

  validates :name, :description, presence: true
  validates :kilometre, numericality: { greater_than_or_equal_to: 0 }, uniqueness: true

  scope :along_the_road, -> { order(:kilometre) }

  def next_stop
    Stop.along_the_road.find_by("kilometre > ?", kilometre)
  end
end
